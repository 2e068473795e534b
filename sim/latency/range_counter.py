"""Counts the steps outside the ranges that a latency model was measured in."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures
from sim.latency.model import RangeExit, RangeReport


class Limit(NamedTuple):
    """The measured range of one quantity of a step.

    Attributes:
        label: its name in warnings.
        read: returns its value in a step; for a mean over rows, returns the sum.
        low, high: the ends of the range, both included.
        rows: for a mean over rows, returns their number. The value of each row grows by one in each
            step of a decode run. None: the quantity is no mean, and stays the same in a run.
    """

    label: str
    read: Callable[[StepFeatures], float]
    low: float
    high: float
    rows: Callable[[StepFeatures], int] | None = None

    def values(self, first: StepFeatures, num_steps: int) -> NDArray[np.float64]:
        """The quantity in `first` and in the following steps of a decode run; shape [num_steps]."""
        total = self.read(first)
        rows = self.rows(first) if self.rows else 0
        if not rows:
            return np.full(num_steps, total, dtype=np.float64)
        return (total + rows * np.arange(num_steps, dtype=np.int64)) / rows


class RangeCounter:
    """Counts for each mode the steps outside the measured ranges, and notes how far outside."""

    def __init__(self, limits: Mapping[ForwardMode, Sequence[Limit]]) -> None:
        self._limits = {mode: tuple(limits_of) for mode, limits_of in limits.items()}
        self._num_steps = 0
        self._num_outside = 0
        self._exits: dict[ForwardMode, dict[str, RangeExit]] = {}

    def count(self, first: StepFeatures, num_steps: int) -> None:
        """Count `num_steps` steps: `first` and the steps of a decode run after it."""
        self._num_steps += num_steps
        # A mode that was not measured has no limits, and its steps do not count as outside.
        limits = self._limits.get(first.mode, ())
        for limit in limits:
            value = last = limit.read(first)
            if limit.rows and (rows := limit.rows(first)):
                value /= rows
                last = value + (num_steps - 1)
            if not (limit.low <= value and last <= limit.high):
                self._count_outside(limits, first, num_steps)
                return

    def report(self) -> RangeReport:
        # Modes are in the order of their first exits. Quantities are in the order of the limits,
        # because a run of steps is counted at once: which quantity left first is not known.
        exits = [
            exits_of[limit.label]
            for mode, exits_of in self._exits.items()
            for limit in self._limits[mode]
            if limit.label in exits_of
        ]
        return RangeReport(self._num_steps, self._num_outside, tuple(exits))

    def _count_outside(
        self, limits: tuple[Limit, ...], first: StepFeatures, num_steps: int
    ) -> None:
        any_outside = np.zeros(num_steps, dtype=bool)
        for limit in limits:
            values = limit.values(first, num_steps)
            outside = (values < limit.low) | (values > limit.high)
            if outside.any():
                any_outside |= outside
                self._add(first.mode, limit, values[outside])
        self._num_outside += int(np.count_nonzero(any_outside))

    def _add(self, mode: ForwardMode, limit: Limit, values: NDArray[np.float64]) -> None:
        ends = float(values.min()), float(values.max())
        name = mode.name.lower()
        found = RangeExit(name, limit.label, len(values), *ends, limit.low, limit.high)
        exits = self._exits.setdefault(mode, {})
        before = exits.get(limit.label)
        exits[limit.label] = found if before is None else before.joined(found)


Span = tuple[float, float]
Limits = Mapping[ForwardMode, tuple[Limit, ...]]


_DECODE_ROWS = attrgetter("num_decode_rows")
_CONTEXT, _LONGEST = map(attrgetter, ("num_decode_context_tokens", "max_decode_context_tokens"))


def _num_tokens(step: StepFeatures) -> float:
    return step.num_prefill_tokens + step.num_decode_rows


def _num_rows(step: StepFeatures) -> float:
    return step.num_prefill_rows + step.num_decode_rows


def _longest_chunk(step: StepFeatures) -> float:
    return step.prefill_chunks()[0].new


def _most_cached(step: StepFeatures) -> float:
    return max([chunk.cached for chunk in step.prefill_chunks()])


def _knows_longest(step: StepFeatures) -> int:
    return int(_LONGEST(step) > 0)


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
        every = [Limit("tokens of a step", _num_tokens, *self.tokens)]
        if self.rows:
            every.append(Limit("rows of a step", _num_rows, *self.rows))
        prefill = (
            Limit("longest prefill chunk", _longest_chunk, *self.chunk),
            Limit("cached tokens of a chunk", _most_cached, *self.cached),
        )
        # A mean over rows grows by one token in each step of a decode run. So does the longest
        # context, so it counts as a mean over one row. If it is not known, it is 0 in every step,
        # which is inside the range.
        context = (
            Limit("mean decode context", _CONTEXT, *self.context, _DECODE_ROWS),
            Limit("longest decode context", _LONGEST, 0, self.context[1], _knows_longest),
        )
        alone = Limit("decode rows", _DECODE_ROWS, *self.decode_rows)
        beside = Limit("decode rows", _DECODE_ROWS, *self.mixed_rows)
        return {
            ForwardMode.EXTEND: (*every, *prefill),
            ForwardMode.DECODE: (*every, alone, *context),
            ForwardMode.MIXED: (*every, *prefill, beside, *context),
        }
