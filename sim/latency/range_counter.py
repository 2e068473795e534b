"""Counts the steps that leave what a latency model was measured on. Cheap where they do not."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures
from sim.latency.range_report import RangeExit, RangeReport


class Limit(NamedTuple):
    """What was measured of one number of a step.

    Attributes:
        words: how warnings call it.
        read: its value in a step; with `rows`, the sum that it is the mean of.
        low, high: the ends of the range, both of them inside.
        rows: how many rows it is a mean over: each grows by one from step to step of a decode run.
            Without them the number stays the same in a run.
    """

    words: str
    read: Callable[[StepFeatures], float]
    low: float
    high: float
    rows: Callable[[StepFeatures], int] | None = None

    def values(self, first: StepFeatures, num_steps: int) -> NDArray[np.float64]:
        """Its values in `first` and the steps of its decode run; shape [num_steps]."""
        total = self.read(first)
        rows = self.rows(first) if self.rows else 0
        if not rows:
            return np.full(num_steps, total, dtype=np.float64)
        return (total + rows * np.arange(num_steps, dtype=np.int64)) / rows


class RangeCounter:
    """What the steps that ran left of the measured ranges, mode by mode."""

    def __init__(self, limits: Mapping[ForwardMode, Sequence[Limit]]) -> None:
        self._limits = {mode: tuple(limits_of) for mode, limits_of in limits.items()}
        self._num_steps = 0
        self._num_outside = 0
        self._exits: dict[ForwardMode, dict[str, RangeExit]] = {}

    def count(self, first: StepFeatures, num_steps: int) -> None:
        """`first` and the steps of its decode run ran, `num_steps` together."""
        self._num_steps += num_steps
        # A mode that was never measured has no range; whoever predicts it says so.
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
        # Not in the order in which they left: in a run of steps that is not known.
        exits = [
            exits_of[limit.words]
            for mode, exits_of in self._exits.items()
            for limit in self._limits[mode]
            if limit.words in exits_of
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
        lowest, highest = float(values.min()), float(values.max())
        exits = self._exits.setdefault(mode, {})
        before = exits.get(limit.words)
        num_steps = len(values)
        if before is not None:
            num_steps += before.num_steps
            lowest, highest = min(lowest, before.lowest), max(highest, before.highest)
        exits[limit.words] = RangeExit(
            mode.name.lower(), limit.words, num_steps, lowest, highest, limit.low, limit.high
        )
