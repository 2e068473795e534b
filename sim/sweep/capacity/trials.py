"""Runs the trials of a search for deployments, each only for as long as its answer is open.

A trial asks whether a deployment keeps the SLO under a load: for enough requests, as a mean over
the seeds. The attainment of one seed's run can be too low whatever the others are. With `n` seeds
that matters below

    least = n x min_slo_attainment - sum of what the n - 1 others are at most

where another run is at most 1, or what is known of it. A run stops when it is certain to end below
that, and a run whose `least` is above 1 is not made.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from sim.confidence.judged import is_as_simulated
from sim.sweep.capacity.candidates import Candidate, Size
from sim.sweep.capacity.front import TriedLoad
from sim.sweep.capacity.judged_runs import JudgedRuns, most_of
from sim.sweep.capacity.plan import CapacityPlan
from sim.sweep.plan import Point
from sim.sweep.store import PointOutcome, StoredPoints
from sim.workers.executor import TaskStatus

# Called before the first point of a round and after each, with the number of its points, and of
# those that have an outcome.
RoundWatcher = Callable[[int, int], None]
# Far more than rounding changes the mean of attainments, and less than one of a million requests.
_MARGIN = 1e-9


class Trial(NamedTuple):
    """A deployment under a load, to be run with some seeds.

    Attributes:
        load: as a multiple of the plan's own.
        num_whole: how many of the first seeds' runs have to go on to their ends.
    """

    candidate: Candidate
    size: Size
    load: float
    num_whole: int = 0

    @property
    def place(self) -> tuple[int, Size, float]:
        """Tells it from other trials, whatever the seeds."""
        return self.candidate.number, self.size, self.load


@dataclass(frozen=True, slots=True)
class TrialRuns:
    """Runs the trials of a round together, with the first `num_seeds` seeds of the plan.

    Attributes:
        tried: what was run, which all `TrialRuns` of a search share.
    """

    plan: CapacityPlan
    points: StoredPoints
    watcher: RoundWatcher
    num_seeds: int
    tried: dict[tuple[int, Size, float], TriedLoad]
    # Whether the runs of a candidate may be stopped, by its number.
    _may_stop: dict[int, bool] = field(default_factory=dict)

    def run(self, trials: Sequence[Trial]) -> list[JudgedRuns]:
        """The runs of each of these trials, in their order."""
        known = [self._known(trial) for trial in trials]
        asked = [self._points(*each) for each in zip(trials, known, strict=True)]
        num_points, before = sum(map(len, asked)), self.points.num_settled
        found = self.points.run(
            self.plan.plan,
            asked,
            lambda settled, _run, _left: self.watcher(num_points, settled - before),
        )
        judged = []
        for trial, old, new in zip(trials, known, found, strict=True):
            outcomes = _merged(old, new)
            runs = JudgedRuns(outcomes, self.num_seeds - len(outcomes))
            judged.append(runs)
            if new and runs.fault is None:
                self.tried[trial.place] = TriedLoad(
                    candidate=trial.candidate, size=trial.size, load=trial.load, judged=runs
                )
        return judged

    def _known(self, trial: Trial) -> list[PointOutcome | None]:
        """What earlier trials say of each seed; None: nothing that helps."""
        tried = self.tried.get(trial.place)
        outcomes = () if tried is None else tried.judged.outcomes[: self.num_seeds]
        known: list[PointOutcome | None] = [
            None if place < trial.num_whole and one.status is TaskStatus.STOPPED else one
            for place, one in enumerate(outcomes)
        ]
        return known + [None] * (self.num_seeds - len(known))

    def _points(self, trial: Trial, known: Sequence[PointOutcome | None]) -> list[Point]:
        """The points of the seeds of which nothing is known; none if the answer is known."""
        seeds = self.plan.seeds[: self.num_seeds]
        missing = [place for place, one in enumerate(known) if one is None]
        least = self._least(known) if self._stops(trial.candidate) else 0.0
        if least > 1:
            missing = [place for place in missing if place < trial.num_whole]
        if not missing:
            return []
        settings = self.plan.settings(trial.candidate, trial.size, trial.load)
        points = self.plan.plan.with_seeds(settings, [seeds[place] for place in missing])
        return [
            replace(point, least_attainment=0.0 if place < trial.num_whole else max(least, 0.0))
            for place, point in zip(missing, points, strict=True)
        ]

    def _least(self, known: Sequence[PointOutcome | None]) -> float:
        """The attainment below which the run of any other seed decides."""
        num_all = len(self.plan.seeds)
        most = [most_of(one) for one in known if one is not None]
        others = sum(most) + num_all - len(most) - 1
        return num_all * self.plan.section.min_slo_attainment - others - _MARGIN

    def _stops(self, candidate: Candidate) -> bool:
        """Whether nothing but the simulated attainment is asked of runs that miss the SLO."""
        section = self.plan.section
        if section.max_kw is not None:
            return False
        if candidate.number not in self._may_stop:
            loaded = self.plan.plan.vary(self.plan.settings(candidate, candidate.smallest))
            self._may_stop[candidate.number] = is_as_simulated(loaded, section.judged_by)
        return self._may_stop[candidate.number]


def _merged(
    known: Sequence[PointOutcome | None], new: Sequence[PointOutcome]
) -> tuple[PointOutcome, ...]:
    """The outcomes of the seeds in their order; `new` are those that were not known, or none."""
    arriving = chain(new, [None] * len(known))
    outcomes = [next(arriving) if one is None else one for one in known]
    return tuple(one for one in outcomes if one is not None)
