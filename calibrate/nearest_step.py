"""Looks step times up in a recording by what a step computes, not by the step's number."""

from collections.abc import Sequence
from copy import copy
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from calibrate.step_times import measured_times
from sim.core.arrays import Int64
from sim.core.batch import ForwardMode
from sim.core.packed import Line
from sim.latency.features import StepFeatures, line_features
from sim.latency.model import StepTime

# Sums of differences that are nearer to each other than this are equal.
_EQUAL = 1e-12


class NearestStepLatency:
    """Every step takes as long as the nearest recorded step.

    While a run makes the recorded decisions, this is the recorded step with the same number. After
    a different decision the numbers are shifted, but times of steps with the same composition still
    hold. The nearest step is a step of the same mode, if there is one, with the smallest sum of
    differences of quantities, each divided by its largest recorded value. Of equally near steps,
    the one closest to the run's place in the recording is taken. So a recording never runs out.
    """

    def __init__(self, steps: Sequence[Line], *, overlaps: bool) -> None:
        """Take at least one step of a run log, and whether the run overlapped scheduling."""
        self._steps = [line_features(line) for line in steps]
        measured = measured_times(steps, overlaps=overlaps)
        self._times = [StepTime(time.device_ns, time.host_ns) for time in measured]
        self._launch_ns = [time.launch_ns for time in measured]
        quantities = np.array([step.totals for step in self._steps], dtype=np.float64)
        self._unit = np.maximum(quantities.max(axis=0), 1)
        modes = np.array([step.mode for step in self._steps])
        self._of_mode = {
            mode: _Recorded(numbers, quantities[numbers] / self._unit)
            for mode in ForwardMode
            if len(numbers := np.flatnonzero(modes == mode))
        }
        self._of_all = _Recorded(np.arange(len(self._steps)), quantities / self._unit)
        self._begin()

    def _begin(self) -> None:
        self._next = 0
        # A cache, because `consume` looks up the same steps again.
        self._nearest = lru_cache(maxsize=1024)(self._find_nearest)

    def from_the_beginning(self) -> "NearestStepLatency":
        """The same recording for another run; what was looked up before is found at once."""
        other = copy(self)
        other._begin()
        return other

    def nearest(self, step: StepFeatures) -> int:
        """The number of the recorded step that is nearest to this one."""
        return self._nearest(step.mode, step.totals, self._next)

    def step_ns(self, step: StepFeatures) -> StepTime:
        return self._times[self.nearest(step)]

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        numbers = self._run(first, num_steps)
        launches_ns = [self._launch_ns[number] for number in numbers]
        alike = [launch_ns == launches_ns[0] for launch_ns in launches_ns]
        numbers = numbers[: alike.index(False)] if False in alike else numbers
        times = np.array([self._times[number] for number in numbers], dtype=np.int64)
        return times[:, 0].copy(), times[:, 1].copy()

    def launch_ns(self, step: StepFeatures) -> int:
        return self._launch_ns[self.nearest(step)]

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        """Move the place in the recording behind the step whose time was used last."""
        self._next = self._run(first, num_steps)[-1] + 1

    def _run(self, first: StepFeatures, num_steps: int) -> list[int]:
        """The recorded steps whose times a decode run takes."""
        step, here = first, self._next
        numbers: list[int] = []
        for _ in range(num_steps):
            numbers.append(self._nearest(step.mode, step.totals, here))
            step, here = step.next_decode(), numbers[-1] + 1
        return numbers

    def _find_nearest(self, mode: ForwardMode, totals: tuple[int, ...], here: int) -> int:
        if here < len(self._steps):
            recorded = self._steps[here]
            if recorded.mode is mode and recorded.totals == totals:
                return here
        recorded_steps = self._of_mode.get(mode, self._of_all)
        nearest = recorded_steps.nearest(np.array(totals, dtype=np.float64) / self._unit)
        # Of two that are equally close, the later one.
        return min(nearest, key=lambda number: (abs(number - here), number < here))


class _Recorded:
    """Recorded steps, to be found by their quantities in a tree.

    Args:
        numbers: of the steps in the log.
        quantities: of each, divided by their units; shape [number of steps, quantities].
    """

    def __init__(self, numbers: Int64, quantities: NDArray[np.float64]) -> None:
        self._numbers, self._tree = numbers, cKDTree(quantities)
        self._found: dict[bytes, list[int]] = {}

    def nearest(self, quantities: NDArray[np.float64]) -> list[int]:
        """The numbers of all steps with the smallest sum of differences."""
        key = quantities.tobytes()
        if (found := self._found.get(key)) is None:
            distance, _ = self._tree.query(quantities, p=1)
            places = self._tree.query_ball_point(quantities, distance + _EQUAL, p=1)
            found = self._found[key] = [int(number) for number in self._numbers[places]]
        return found
