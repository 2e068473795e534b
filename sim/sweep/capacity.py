"""Searches for the cheapest deployments that meet the SLO, and for how much more they can bear.

All candidates that can still be among the cheapest are tried in rounds: the trials of a round are
run together, and their results decide on the next round. So the number of workers changes nothing,
and a search that was killed finds the trials that it had finished.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from sim.sweep.bracket import Bracket
from sim.sweep.candidates import Candidate, reason_of
from sim.sweep.capacity_plan import CapacityPlan
from sim.sweep.deployments import Deployment, Judged, Verdict
from sim.sweep.plan import Settings
from sim.sweep.points import PointOutcome
from sim.sweep.tune import MemoisedPoints
from sim.workers.executor import Status

# Called with the number of points of a round, before it, and with those that have an outcome.
RoundWatcher = Callable[[int, int], None]


@dataclass(slots=True)
class _Search:
    """The search for a candidate's number of replicas."""

    candidate: Candidate
    bracket: Bracket
    judged: dict[int, Judged] = field(default_factory=dict)
    fault: PointOutcome | None = None

    @property
    def least_cost(self) -> float:
        """What it costs at least, by what is known."""
        return self.candidate.cost(self.bracket.low + 1)

    @property
    def known_cost(self) -> float:
        """The cost of a number of replicas that is known to do; else infinity."""
        high = self.bracket.high
        return float("inf") if high is None else self.candidate.cost(high)


def find_deployments(
    plan: CapacityPlan, points: MemoisedPoints, watcher: RoundWatcher
) -> list[Deployment]:
    """Judge all candidates; those that meet the SLO come first, the best of them first.

    Raises:
        InputError: an outcome cannot be stored, or the executor cannot be used.
    """
    runs = _Runs(plan, points, watcher)
    refused = [
        Deployment(candidate=one, verdict=Verdict.CANNOT_RUN, reason=one.reason)
        for one in plan.candidates
        if one.reason is not None
    ]
    searches = [
        _Search(one, Bracket(one.max_replicas)) for one in plan.candidates if one.reason is None
    ]
    _find_replicas(plan, searches, runs)
    found = [_deployment(plan, search) for search in searches]
    meeting = sorted((one for one in found if one.verdict is Verdict.MEETS), key=Deployment.rank)
    shown = _with_headroom(plan, meeting[: plan.section.num_shown], runs)
    others = [one for one in found if one.verdict is not Verdict.MEETS]
    by_number = sorted([*others, *refused], key=lambda one: one.candidate.number)
    rest = sorted(by_number, key=lambda one: list(Verdict).index(one.verdict))
    return [*sorted(shown, key=Deployment.rank), *meeting[plan.section.num_shown :], *rest]


def _find_replicas(plan: CapacityPlan, searches: Sequence[_Search], runs: "_Runs") -> None:
    """Find each candidate's number of replicas, until it is clear which are the cheapest."""
    while True:
        limit = _cost_limit(plan, searches)
        trials = [
            (search, number)
            for search in searches
            if search.fault is None
            and search.least_cost <= limit
            and (number := search.bracket.next_trial) is not None
        ]
        if not trials:
            return
        settings = [plan.settings(search.candidate, number) for search, number in trials]
        for (search, number), judged in zip(trials, runs.run(settings), strict=True):
            search.fault = judged.fault
            search.judged[number] = judged
            if search.fault is None:
                holds = judged.attains(plan.section.min_slo_attainment)
                search.bracket.tell(number, holds=holds)


def _cost_limit(plan: CapacityPlan, searches: Sequence[_Search]) -> float:
    """What costs more is not among the deployments that are shown."""
    num_shown = plan.section.num_shown
    costs = sorted(search.known_cost for search in searches if search.fault is None)
    return costs[num_shown - 1] if len(costs) >= num_shown else float("inf")


def _deployment(plan: CapacityPlan, search: _Search) -> Deployment:
    candidate, bracket = search.candidate, search.bracket
    if search.fault is not None:
        is_refused = search.fault.status is Status.BAD_INPUT
        return Deployment(
            candidate=candidate,
            verdict=Verdict.CANNOT_RUN if is_refused else Verdict.FAILED,
            reason=reason_of(plan.plan, search.fault.message or ""),
        )
    if bracket.next_trial is not None:
        verdict, replicas = Verdict.DEARER, bracket.low + 1
    elif bracket.high is None:
        verdict, replicas = Verdict.MISSES, bracket.low
    else:
        verdict, replicas = Verdict.MEETS, bracket.high
    return Deployment(
        candidate=candidate,
        verdict=verdict,
        replicas=replicas,
        judged=search.judged.get(replicas),
        fewer=search.judged.get(replicas - 1),
    )


def _with_headroom(
    plan: CapacityPlan, deployments: Sequence[Deployment], runs: "_Runs"
) -> list[Deployment]:
    """The deployments with their headroom: the most that still meets the SLO."""
    if not plan.is_scalable:
        return list(deployments)
    # What is sought is the smallest number of steps that is too much.
    brackets = [Bracket(plan.num_headroom_steps) for _ in deployments]
    while trials := [
        (one, bracket, steps)
        for one, bracket in zip(deployments, brackets, strict=True)
        if (steps := bracket.next_trial) is not None
    ]:
        settings = [
            plan.settings(one.candidate, one.replicas or 1, plan.headroom(steps))
            for one, _, steps in trials
        ]
        for (_, bracket, steps), judged in zip(trials, runs.run(settings), strict=True):
            attains = judged.fault is None and judged.attains(plan.section.min_slo_attainment)
            bracket.tell(steps, holds=not attains)
    return [
        replace(one, headroom=plan.headroom(bracket.low), is_headroom_open=bracket.high is None)
        for one, bracket in zip(deployments, brackets, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs the trials of a round as one plan, so that all workers are busy."""

    plan: CapacityPlan
    points: MemoisedPoints
    watcher: RoundWatcher

    def run(self, settings: Sequence[Settings]) -> list[Judged]:
        """The runs with each of these settings, in their order."""
        points = chain.from_iterable(self.plan.points(one) for one in settings)
        numbered = tuple(replace(point, number=number) for number, point in enumerate(points))
        before = self.points.num_settled
        outcomes = iter(
            self.points.run(
                replace(self.plan.plan, points=numbered),
                lambda settled, _: self.watcher(len(numbered), settled - before),
            )
        )
        return [Judged(tuple(next(outcomes) for _ in self.plan.seeds)) for _ in settings]
