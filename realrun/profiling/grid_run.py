"""Measures the compositions of a grid, round by round, until the budget is spent."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch

from realrun.clock import Budget
from realrun.profiling.composition import Composition

Stopped = Literal["complete", "budget", "interrupted", "failed"]

# A step that would take more than this share of the budget is skipped, because many shorter steps
# can be measured in that time.
_MAX_SHARE = 1 / 20


class Measurement(NamedTuple):
    """One measured step.

    Attributes:
        forward_ns: device time of the forward pass and sampling.
        plan_ns, launch_ns, sample_ns, read_back_ns: host times, as in `MeasuredTimes`.
        padded_rows: rows of the CUDA graph that ran it; 0 if it ran eagerly.
    """

    forward_ns: int
    plan_ns: int
    launch_ns: int
    sample_ns: int
    read_back_ns: int
    padded_rows: int


@dataclass(slots=True, eq=False)
class GridMeasurements:
    """The measurements of a grid so far.

    Attributes:
        points: for each composition its measurements, in order of first measurement.
        num_steps: number of measured steps.
        refused: compositions that the runner could not run, with the reason; larger compositions
            of the same mode are not tried.
        too_long: compositions that would have taken too large a share of the budget.
        stopped: why the measurement ended.
        failure: what the device reported, if it failed and can run nothing more.
    """

    points: dict[Composition, list[Measurement]] = field(default_factory=dict)
    num_steps: int = 0
    refused: list[tuple[Composition, str]] = field(default_factory=list)
    too_long: set[Composition] = field(default_factory=set)
    stopped: Stopped = "complete"
    failure: str = ""


class DurationEstimates:
    """Estimates the seconds that measuring a step takes, from the steps measured so far.

    It assumes that a step with more arithmetic takes longer, but at most in proportion.
    """

    def __init__(self) -> None:
        self._known: list[tuple[float, float]] = []

    def note(self, flops: float, seconds: float) -> None:
        """Note the seconds that a step with this arithmetic took."""
        insort(self._known, (flops, seconds))

    def at_most_s(self, flops: float) -> float:
        """An upper limit for a step's seconds; 0 if nothing has been measured.

        The limit is the smaller of two: the time of the next larger measured step, and the time
        of the next smaller one, increased in proportion.
        """
        place = bisect_left(self._known, (flops, 0.0))
        bounds = [seconds for _, seconds in self._known[place : place + 1]]
        bounds += [
            seconds * flops / smaller for smaller, seconds in self._known[max(place - 1, 0) : place]
        ]
        return min(bounds, default=0.0)


def measure_grid(
    rounds: Sequence[Sequence[Composition]],
    measure: Callable[[Composition], Measurement],
    *,
    flops: Callable[[Composition], float],
    budget: Budget,
    repeats: int,
    seed: int,
    watcher: Callable[[int], None] = lambda _num_steps: None,
) -> GridMeasurements:
    """Measure every composition `repeats` times, round by round.

    All compositions of a round are measured once, then all again in another order, and so on. So
    the repeats of a composition are far apart in time, and a drift of the device shows as a spread
    of the repeats. A step that is not expected to fit into the rest of the budget is skipped, and
    Ctrl-C ends the measurement. In both cases the earlier measurements are kept.

    Args:
        rounds: the result of `grid`.
        measure: measures a step. If it raises RuntimeError, as torch does when memory runs out,
            this composition and all larger ones of its mode are skipped. After an error of the
            device itself the measurement ends.
        flops: floating-point operations of a composition.
        budget: the time for all measurements.
        repeats: measured steps of each composition, at least 1.
        seed: seed of the order.
        watcher: called with the number of measured or skipped steps.
    """
    measured, times = GridMeasurements(), DurationEstimates()
    try:
        for number, composition in enumerate(_measuring_order(rounds, repeats, seed)):
            watcher(number)
            if any(composition.is_at_least(refused) for refused, _ in measured.refused):
                continue
            at_most_s = times.at_most_s(flops(composition))
            if at_most_s > budget.total_s * _MAX_SHARE:
                measured.too_long.add(composition)
                continue
            if at_most_s >= budget.left_s():
                measured.stopped = "budget"
                continue
            begin_s = budget.clock()
            _measure_once(composition, measure, measured)
            if measured.stopped == "failed":
                break
            times.note(flops(composition), budget.clock() - begin_s)
    except KeyboardInterrupt:
        measured.stopped = "interrupted"
    return measured


def _measuring_order(
    rounds: Sequence[Sequence[Composition]], repeats: int, seed: int
) -> Iterator[Composition]:
    rng = np.random.default_rng(seed)
    for compositions in rounds:
        for _ in range(repeats):
            for place in rng.permutation(len(compositions)).tolist():
                yield compositions[place]


def _measure_once(
    composition: Composition,
    measure: Callable[[Composition], Measurement],
    measured: GridMeasurements,
) -> None:
    try:
        measurement = measure(composition)
    except RuntimeError as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if isinstance(error, torch.AcceleratorError):
            # After an error inside a kernel, every further call to the device fails.
            measured.stopped, measured.failure = "failed", why
        else:
            measured.refused.append((composition, why))
        return
    measured.points.setdefault(composition, []).append(measurement)
    measured.num_steps += 1
