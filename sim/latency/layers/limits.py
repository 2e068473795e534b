"""The prefill chunks of a step, and the ranges of step sizes in which a table was measured."""

from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures
from sim.latency.range_counter import Limit


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


Span = tuple[float, float]
Limits = Mapping[ForwardMode, tuple[Limit, ...]]


_DECODE_ROWS = attrgetter("num_decode_rows")
_CONTEXT, _LONGEST = map(attrgetter, ("num_decode_context_tokens", "max_decode_context_tokens"))


def _num_tokens(step: StepFeatures) -> float:
    return step.num_prefill_tokens + step.num_decode_rows


def _num_rows(step: StepFeatures) -> float:
    return step.num_prefill_rows + step.num_decode_rows


class MeasuredSpans(NamedTuple):
    """The smallest and the largest size of each kind for which a table has times.

    Attributes:
        tokens: new tokens of a step, prefill and decode.
        chunk: new tokens of its longest prefill row.
        cached: cached tokens of the prefill row with the most.
        decode_rows: decode rows of a step without prefill rows.
        mixed_rows: decode rows of a step with prefill rows.
        context: of a decode row, its new token included.
        rows: rows that get logits; None: the table has no output head.
    """

    tokens: Span
    chunk: Span
    cached: Span
    decode_rows: Span
    mixed_rows: Span
    context: Span
    rows: Span | None = None

    def limits(self) -> Limits:
        """The limits of each mode of steps."""
        every = [Limit("tokens of a step", _num_tokens, *self.tokens)]
        if self.rows:
            every.append(Limit("rows of a step", _num_rows, *self.rows))
        prefill = (
            Limit("longest prefill chunk", lambda step: chunks_of(step)[0].new, *self.chunk),
            Limit(
                "cached tokens of a chunk",
                lambda step: max([chunk.cached for chunk in chunks_of(step)]),
                *self.cached,
            ),
        )
        # A mean over rows grows by one token in each step of a decode run. So does the longest
        # context, so it counts as a mean over one row. If it is not known, it is 0 in every step,
        # which is inside the range.
        context = (
            Limit("mean decode context", _CONTEXT, *self.context, _DECODE_ROWS),
            Limit(
                "longest decode context",
                _LONGEST,
                0,
                self.context[1],
                lambda step: int(_LONGEST(step) > 0),
            ),
        )
        alone = Limit("decode rows", _DECODE_ROWS, *self.decode_rows)
        beside = Limit("decode rows", _DECODE_ROWS, *self.mixed_rows)
        return {
            ForwardMode.EXTEND: (*every, *prefill),
            ForwardMode.DECODE: (*every, alone, *context),
            ForwardMode.MIXED: (*every, *prefill, beside, *context),
        }
