"""The prefill rows of a step as chunks, with which tables are looked up."""

from typing import NamedTuple

from sim.latency.features import StepFeatures


class PrefillChunk(NamedTuple):
    """New tokens of one prefill row, and the cached tokens before them."""

    new: float
    cached: float


def chunks_of(step: StepFeatures) -> list[PrefillChunk]:
    """The step's prefill rows, longest chunk first, then most cached tokens first.

    If the features contain only sums over the rows, the result is equal chunks that have the same
    sums of new tokens and of query-key pairs.
    """
    if step.prefill_rows:
        chunks = [PrefillChunk(new, cached) for cached, new in step.prefill_rows]
        if len(chunks) > 1:
            chunks.sort(reverse=True)
        return chunks
    new = step.num_prefill_tokens / step.num_prefill_rows
    cached = max((step.prefill_attention / step.num_prefill_tokens - new) / 2, 0.0)
    return [PrefillChunk(new, cached)] * step.num_prefill_rows
