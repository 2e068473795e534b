"""Counts the steps that leave a profile's range. Cheap where they do not."""

from collections.abc import Mapping

import numpy as np

from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures
from sim.latency.profile_format import LatencyProfile, mode_of
from sim.latency.profile_terms import MODE_TERMS, QUANTITIES, Reading
from sim.latency.ranges import RangeExit, RangeReport

_Limit = tuple[str, Reading, float, float]


class RangeCounter:
    """What the steps that ran left of the measured ranges, mode by mode."""

    def __init__(self, profile: LatencyProfile) -> None:
        self._limits: Mapping[ForwardMode, tuple[_Limit, ...]] = {
            mode_of(name): tuple(
                (
                    feature,
                    QUANTITIES[feature].read,
                    device.range[feature].low,
                    device.range[feature].high,
                )
                for feature in MODE_TERMS[mode_of(name)].ranges
            )
            for name, device in profile.modes.items()
        }
        self._num_steps = 0
        self._num_outside = 0
        self._exits: dict[tuple[ForwardMode, str], RangeExit] = {}

    def count(self, first: StepFeatures, num_steps: int) -> None:
        """`first` and the steps of its decode run ran, `num_steps` together."""
        self._num_steps += num_steps
        # A mode that was never measured has no range; whoever predicts it says so.
        limits = self._limits.get(first.mode, ())
        for _, read, low, high in limits:
            # Only the mean context changes in a run, and it rises.
            if not (low <= (value := read(first, 0)) and value + (num_steps - 1) <= high):
                self._count_outside(limits, first, num_steps)
                return

    def report(self) -> RangeReport:
        return RangeReport(self._num_steps, self._num_outside, tuple(self._exits.values()))

    def _count_outside(
        self, limits: tuple[_Limit, ...], first: StepFeatures, num_steps: int
    ) -> None:
        any_outside = np.zeros(num_steps, dtype=bool)
        for feature, read, low, high in limits:
            values = np.full(num_steps, read(first, 0), dtype=np.float64)
            if feature == "mean_context" and num_steps > 1:
                rows = first.num_decode_rows
                steps = rows * np.arange(num_steps, dtype=np.int64)
                values = (first.num_decode_context_tokens + steps) / rows
            outside = (values < low) | (values > high)
            if outside.any():
                any_outside |= outside
                self._add(first.mode, feature, values[outside], (low, high))
        self._num_outside += int(np.count_nonzero(any_outside))

    def _add(
        self,
        mode: ForwardMode,
        feature: str,
        values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
        limits: tuple[float, float],
    ) -> None:
        lowest, highest = float(values.min()), float(values.max())
        before = self._exits.get((mode, feature))
        num_steps = len(values)
        if before is not None:
            num_steps += before.num_steps
            lowest, highest = min(lowest, before.lowest), max(highest, before.highest)
        self._exits[mode, feature] = RangeExit(
            mode.name.lower(), QUANTITIES[feature].words, num_steps, lowest, highest, *limits
        )
