"""The prefill rows of a step, as tables of chunks want them."""

from typing import NamedTuple

from sim.latency.features import StepFeatures


class Chunk(NamedTuple):
    """New tokens of one prefill row, and those cached before them."""

    new: float
    cached: float


def chunks_of(step: StepFeatures) -> list[Chunk]:
    """The step's prefill rows, the longest chunk first, of equal ones that with the most cached.

    Where the rows are not known, as many equal ones with the same tokens and query-key pairs.
    """
    if step.prefill_rows:
        chunks = [Chunk(new, cached) for cached, new in step.prefill_rows]
        if len(chunks) > 1:
            chunks.sort(reverse=True)
        return chunks
    new = step.num_prefill_tokens / step.num_prefill_rows
    cached = max((step.prefill_attention / step.num_prefill_tokens - new) / 2, 0.0)
    return [Chunk(new, cached)] * step.num_prefill_rows
