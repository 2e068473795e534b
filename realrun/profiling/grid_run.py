"""Walks the grid: rounds, repeats, a budget, and whatever may end it early."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from realrun.budget import Budget
from realrun.profiling.composition import Composition

Stopped = Literal["complete", "budget", "interrupted"]

# A point that takes more of the budget than this stands for a hundred that are not measured.
_MAX_SHARE = 1 / 20


class Measurement(NamedTuple):
    """One measured step.

    Attributes:
        forward_ns: device time of the forward pass and sampling.
        plan_ns, launch_ns, sample_ns, read_back_ns: the host's parts, as in a run.
        padded_rows: rows of the recorded pass it ran through, 0 if eager.
    """

    forward_ns: int
    plan_ns: int
    launch_ns: int
    sample_ns: int
    read_back_ns: int
    padded_rows: int


@dataclass(slots=True, eq=False)
class GridMeasurements:
    """What a walk found; filled while it goes on.

    Attributes:
        points: measurements of each composition, in order of first measurement.
        num_steps: measured steps.
        refused: compositions that the runner could not run, and why; larger ones of their kind
            were not tried.
        stopped: why it ended.
    """

    points: dict[Composition, list[Measurement]] = field(default_factory=dict)
    num_steps: int = 0
    refused: list[tuple[Composition, str]] = field(default_factory=list)
    stopped: Stopped = "complete"


class VisitTimes:
    """Seconds by arithmetic: more of it takes longer, and at most in proportion."""

    def __init__(self) -> None:
        self._known: list[tuple[float, float]] = []

    def note(self, flops: float, seconds: float) -> None:
        """A visit took so long."""
        insort(self._known, (flops, seconds))

    def at_most_s(self, flops: float) -> float:
        """What a visit should not exceed; 0 before anything is known.

        Neighbours bound it: the next larger one as it is, the next smaller one in proportion.
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
    watcher: Callable[[int], None] = lambda _num_visits: None,
) -> GridMeasurements:
    """Measure every composition `repeats` times, round by round.

    A round is passed through once for each repeat, each time in another order: repeats lie as far
    apart as the round is long, so that a drift shows as spread. A visit is left out if it would
    not fit into what is left of the budget, as far as can be told, and Ctrl-C ends the walk:
    either way what was measured stays.

    Args:
        rounds: see `grid`.
        measure: runs a step; RuntimeError, as torch raises for want of memory, leaves the
            composition and all larger ones of its kind out.
        flops: arithmetic of a composition.
        budget: for all of it.
        repeats: of each composition, at least 1.
        seed: of the order.
        watcher: told the number of visits that are over.
    """
    measured, times = GridMeasurements(), VisitTimes()
    try:
        for number, composition in enumerate(_visits(rounds, repeats, seed)):
            watcher(number)
            if any(composition.is_at_least(refused) for refused, _ in measured.refused):
                continue
            if not _fits(times.at_most_s(flops(composition)), budget):
                measured.stopped = "budget"
                continue
            begin_s = budget.clock()
            _visit(composition, measure, measured)
            times.note(flops(composition), budget.clock() - begin_s)
    except KeyboardInterrupt:
        measured.stopped = "interrupted"
    return measured


def _visits(
    rounds: Sequence[Sequence[Composition]], repeats: int, seed: int
) -> Iterator[Composition]:
    rng = np.random.default_rng(seed)
    for compositions in rounds:
        for _ in range(repeats):
            for place in rng.permutation(len(compositions)).tolist():
                yield compositions[place]


def _fits(at_most_s: float, budget: Budget) -> bool:
    left_s = budget.left_s()
    return left_s > 0 and at_most_s <= min(left_s, budget.total_s * _MAX_SHARE)


def _visit(
    composition: Composition,
    measure: Callable[[Composition], Measurement],
    measured: GridMeasurements,
) -> None:
    try:
        measurement = measure(composition)
    except RuntimeError as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        measured.refused.append((composition, why))
        return
    measured.points.setdefault(composition, []).append(measurement)
    measured.num_steps += 1
