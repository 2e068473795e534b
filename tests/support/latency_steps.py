"""Features of steps written by hand, for tests of latency models."""

from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures


def decode_step(rows: int, context: int, longest: int = 0, shortest: int = 0) -> StepFeatures:
    """A decode step; `context` is the sum over rows; `longest` or `shortest` 0 means not known."""
    return StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, context, context, 0, longest, shortest)


def extend_step(*rows: tuple[int, int]) -> StepFeatures:
    """A prefill step with rows of (cached, new) tokens."""
    return StepFeatures(
        ForwardMode.EXTEND,
        sum(new for _, new in rows),
        sum(new * (2 * cached + new) for cached, new in rows),
        len(rows),
        0,
        0,
        sum(cached + new for cached, new in rows),
        prefill_rows=rows,
    )


def mixed_step(
    prefill: tuple[tuple[int, int], ...],
    rows: int,
    context: int,
    longest: int = 0,
    shortest: int = 0,
) -> StepFeatures:
    """A mixed step: prefill rows of (cached, new) tokens, then decode rows as in `decode_step`."""
    extend = extend_step(*prefill)
    extend.mode = ForwardMode.MIXED
    extend.num_decode_rows = rows
    extend.num_decode_context_tokens = context
    extend.num_context_tokens += context
    extend.max_decode_context_tokens = longest
    extend.min_decode_context_tokens = shortest
    return extend
