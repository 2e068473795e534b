"""Searches for the cheapest deployments that meet the SLO, and for how much more traffic they take.

All candidates that can still be among the cheapest are tried in rounds: the trials of a round are
run together, and their results decide on the next round. So the result does not depend on the
number of workers, and a search that was killed and is run again needs no finished trial again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil, isqrt

from sim.sweep.capacity.candidates import Candidate, Size, reason_of
from sim.sweep.capacity.deployments import DeploymentVerdict, JudgedRuns, TriedDeployment
from sim.sweep.capacity.plan import CapacityPlan
from sim.sweep.plan import Settings
from sim.sweep.store import PointOutcome, StoredPoints
from sim.workers.executor import TaskStatus


@dataclass(slots=True)
class Bracket:
    """What is known about the smallest number from 1 to `limit` for which something holds.

    What holds for a number is taken to hold for all greater ones. Both ends of the result are
    tried, so it is a place where trials really change from one answer to the other.

    Attributes:
        limit: the greatest number to try.
        low: the greatest number for which it did not hold; 0 before the first trial.
        high: the smallest number for which it held; None: there was none.
    """

    limit: int
    low: int = 0
    high: int | None = None

    @property
    def next_trial(self) -> int | None:
        """The number to try next; None: nothing is left to try.

        First 1, then `limit`, to learn at once whether it can hold at all; then numbers between,
        nearer to the lower end, because a small result is likelier than a large one.
        """
        if self.low == 0:
            return None if self.high is not None else 1
        if self.high is None:
            return None if self.low >= self.limit else self.limit
        if self.high == self.low + 1:
            return None
        return min(max(isqrt(self.low * self.high), self.low + 1), self.high - 1)

    def tell(self, number: int, *, holds: bool) -> None:
        """The answer to a trial."""
        if holds:
            self.high = number
        else:
            self.low = number


# Step times predict how many servers the traffic keeps busy. A little fewer may meet the SLO: they
# can go on after the last arrival.
_LEAST_SHARE = 0.8
_LEAST_LOAD = 0.1


class Replicas:
    """Searches the number of servers that do both prefill and decode."""

    def __init__(self, limit: int) -> None:
        self._bracket = Bracket(limit)

    @property
    def next_trials(self) -> list[Size]:
        """The sizes to try next; none: the search is over."""
        number = self._bracket.next_trial
        return [] if number is None else [(number,)]

    @property
    def best(self) -> Size | None:
        """The cheapest size that met the SLO; None: there was none."""
        return None if self._bracket.high is None else (self._bracket.high,)

    @property
    def least(self) -> Size:
        """The cheapest size that met the SLO, or may still meet it."""
        return (self._bracket.low + 1,)

    @property
    def largest_failed(self) -> Size:
        """The largest size that missed the SLO."""
        return (self._bracket.low,)

    def tell(self, size: Size, *, holds: bool) -> None:
        """The answer to a trial."""
        self._bracket.tell(size[0], holds=holds)


@dataclass
class Splits:
    """Searches the numbers of prefill and of decode servers.

    More servers of either kind are taken to meet the SLO if fewer do. The search first looks for
    the smallest size that meets it on a path that adds one server of the busier kind at each step.
    If there is one, it then tries the largest of all cheaper sizes, until none of them meets the
    SLO.

    Attributes:
        candidate: the disaggregated servers.
        failed: sizes that missed the SLO.
        best: the cheapest size that met it; None: there was none.
    """

    candidate: Candidate
    failed: list[Size] = field(default_factory=list)
    best: Size | None = None

    def __post_init__(self) -> None:
        decoders = self.candidate.decoders
        self._loads = (0.0, 0.0) if decoders is None else decoders.loads
        floor = [max(1, ceil(_LEAST_SHARE * load - 1e-9)) for load in self._loads]
        self._floor: Size = tuple(floor)
        self._path = self._balanced_path()
        # Of the path: the last index that failed, and the first that held.
        self._low, self._high = -1, len(self._path)

    def _fits(self, size: Size) -> bool:
        most = self.candidate.max_gpus
        return sum(size) <= self.candidate.max_replicas and (
            most is None or self.candidate.gpus(size) <= most
        )

    def _balanced_path(self) -> list[Size]:
        path: list[Size] = []
        prefill, decode = self._floor
        # A kind of server whose load is unknown (0) must become more, too.
        loads = [max(load, _LEAST_LOAD, _LEAST_LOAD * max(self._loads)) for load in self._loads]
        while self._fits((prefill, decode)):
            path.append((prefill, decode))
            if loads[0] / prefill > loads[1] / decode:
                prefill += 1
            else:
                decode += 1
        return path

    @property
    def next_trials(self) -> list[Size]:
        """The sizes to try next; none: the search is over."""
        if self._low + 1 < self._high:
            if self._high == len(self._path):
                # In growing strides: a small result is likelier than a large one.
                return [self._path[min(2 * self._low + 2, self._high - 1)]]
            return [self._path[(self._low + self._high) // 2]]
        return [] if self.best is None else self._cheaper(self.candidate.cost(self.best))

    def _cheaper(self, cost: float) -> list[Size]:
        """The largest of the sizes that cost less and may meet the SLO."""
        price = self.candidate.cost
        most = int(self.candidate.gpus(self.best or self._floor))
        ranges = (
            range(low, most // gpus + 1)
            for low, gpus in zip(self._floor, self.candidate.server_gpus, strict=True)
        )
        open_sizes = [
            size
            for size in product(*ranges)
            if price(size) < cost and self._fits(size) and not self._is_refuted(size)
        ]
        return [one for one in open_sizes if not any(_covers(two, one) for two in open_sizes)]

    def _is_refuted(self, size: Size) -> bool:
        return any(size == one or _covers(one, size) for one in self.failed)

    @property
    def least(self) -> Size:
        """The cheapest size that met the SLO, or may still meet it."""
        if self.best is not None and not self._cheaper(self.candidate.cost(self.best)):
            return self.best
        prefill, decode = self._floor
        most = max((one[0] for one in self.failed), default=0)
        sizes = [
            (num, max([decode, *(one[1] + 1 for one in self.failed if one[0] >= num)]))
            for num in range(prefill, max(most + 1, prefill) + 1)
        ]
        return min(sizes, key=self.candidate.cost)

    @property
    def largest_failed(self) -> Size:
        """The largest size that missed the SLO; the smallest possible if none was tried."""
        return self._path[self._low] if self._low >= 0 else self._floor

    def tell(self, size: Size, *, holds: bool) -> None:
        """The answer to a trial."""
        if size in self._path:
            index = self._path.index(size)
            if holds:
                self._high = min(self._high, index)
            else:
                self._low = max(self._low, index)
        if not holds:
            self.failed.append(size)
        elif self.best is None or self.candidate.cost(size) < self.candidate.cost(self.best):
            self.best = size


def _covers(one: Size, other: Size) -> bool:
    """Whether a size is another one with more servers."""
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


# Called with the number of points of a round, before it, and with those that have an outcome.
RoundWatcher = Callable[[int, int], None]


@dataclass(slots=True)
class _Search:
    """The search for a candidate's numbers of servers."""

    candidate: Candidate
    sizes: Replicas | Splits
    judged: dict[Size, JudgedRuns] = field(default_factory=dict)
    fault: PointOutcome | None = None

    @property
    def least_cost(self) -> float:
        """The least cost that is still possible."""
        return self.candidate.cost(self.sizes.least)

    @property
    def known_cost(self) -> float:
        """The cost of the cheapest size that met the SLO; infinity: there is none."""
        best = self.sizes.best
        return float("inf") if best is None else self.candidate.cost(best)

    @property
    def is_open(self) -> bool:
        """Whether something is left to try."""
        return self.fault is None and bool(self.sizes.next_trials)


def find_deployments(
    plan: CapacityPlan, points: StoredPoints, watcher: RoundWatcher
) -> list[TriedDeployment]:
    """Judge all candidates; those that meet the SLO come first, the best of them first.

    Raises:
        InputError: an outcome cannot be stored, or the executor cannot be used.
    """
    runs = _Runs(plan, points, watcher)
    refused = [
        TriedDeployment(candidate=one, verdict=DeploymentVerdict.CANNOT_RUN, reason=one.reason)
        for one in plan.candidates
        if one.reason is not None
    ]
    searches = [
        _Search(one, Replicas(one.max_replicas) if one.decoders is None else Splits(one))
        for one in plan.candidates
        if one.reason is None
    ]
    _find_sizes(plan, searches, runs)
    found = [_deployment(plan, search) for search in searches]
    meeting = sorted(
        (one for one in found if one.verdict is DeploymentVerdict.MEETS), key=TriedDeployment.rank
    )
    first = shown_of(plan, meeting)
    shown = _with_headroom(plan, first, runs)
    dearer = [one for one in meeting if one not in first]
    others = [one for one in found if one.verdict is not DeploymentVerdict.MEETS]
    by_number = sorted([*others, *refused], key=lambda one: one.candidate.number)
    rest = sorted(by_number, key=lambda one: list(DeploymentVerdict).index(one.verdict))
    return [*sorted(shown, key=TriedDeployment.rank), *dearer, *rest]


def shown_of(plan: CapacityPlan, meeting: Sequence[TriedDeployment]) -> list[TriedDeployment]:
    """The deployments that are shown, of those that meet the SLO.

    They are the cheapest with servers that do both, and the cheapest disaggregated ones.
    """
    num = plan.section.num_shown
    both = [one for one in meeting if one.candidate.decoders is None][:num]
    disaggregated = [one for one in meeting if one.candidate.decoders is not None][:num]
    return [one for one in meeting if one in both or one in disaggregated]


def _find_sizes(plan: CapacityPlan, searches: Sequence[_Search], runs: "_Runs") -> None:
    """Find each candidate's numbers of servers, until it is clear which are the cheapest."""
    kinds = [
        [one for one in searches if (one.candidate.decoders is None) is do_both]
        for do_both in (True, False)
    ]
    while True:
        trials = [
            (search, size)
            for kind in kinds
            for search in _tried_next(plan, kind)
            for size in search.sizes.next_trials
        ]
        if not trials:
            return
        settings = [plan.settings(search.candidate, size) for search, size in trials]
        for (search, size), judged in zip(trials, runs.run(settings), strict=True):
            search.fault = search.fault or judged.fault
            search.judged[size] = judged
            if judged.fault is None:
                search.sizes.tell(size, holds=judged.attains(plan.section.min_slo_attainment))


def _tried_next(plan: CapacityPlan, searches: Sequence[_Search]) -> list[_Search]:
    """The searches of one kind that go on: those that can be among the cheapest.

    Of disaggregated servers there are many pairs, and step times say roughly what each costs. So
    the pairs that look cheapest are tried first; most others never need a trial.
    """
    num_shown = plan.section.num_shown
    limit = _nth([one.known_cost for one in searches if one.fault is None], num_shown)
    going_on = [one for one in searches if one.is_open and one.least_cost <= limit]
    if all(one.candidate.decoders is None for one in going_on):
        return going_on
    first = _nth([one.least_cost for one in searches if one.fault is None], num_shown)
    return [one for one in going_on if one.least_cost <= first] or going_on


def _nth(costs: Sequence[float], number: int) -> float:
    """The cost at place `number` (from 1) in ascending order; infinity: there are fewer."""
    return sorted(costs)[number - 1] if len(costs) >= number else float("inf")


def _deployment(plan: CapacityPlan, search: _Search) -> TriedDeployment:
    candidate, sizes = search.candidate, search.sizes
    if search.fault is not None:
        is_refused = search.fault.status is TaskStatus.BAD_INPUT
        return TriedDeployment(
            candidate=candidate,
            verdict=DeploymentVerdict.CANNOT_RUN if is_refused else DeploymentVerdict.FAILED,
            reason=reason_of(plan.plan, search.fault.message or ""),
        )
    if search.is_open:
        verdict, size = DeploymentVerdict.DEARER, sizes.least
    elif sizes.best is None:
        verdict, size = DeploymentVerdict.MISSES, sizes.largest_failed
    else:
        verdict, size = DeploymentVerdict.MEETS, sizes.best
    fewer = [(*size[:kind], size[kind] - 1, *size[kind + 1 :]) for kind in range(len(size))]
    return TriedDeployment(
        candidate=candidate,
        verdict=verdict,
        size=size,
        judged=search.judged.get(size),
        fewer=tuple((one, search.judged[one]) for one in fewer if one in search.judged),
    )


def _with_headroom(
    plan: CapacityPlan, deployments: Sequence[TriedDeployment], runs: "_Runs"
) -> list[TriedDeployment]:
    """The deployments with their headroom: the most that still meets the SLO."""
    if not plan.is_scalable:
        return list(deployments)
    # The bracket finds the smallest number of steps with which the SLO is missed.
    brackets = [Bracket(plan.num_headroom_steps) for _ in deployments]
    while trials := [
        (one, bracket, steps)
        for one, bracket in zip(deployments, brackets, strict=True)
        if (steps := bracket.next_trial) is not None
    ]:
        settings = [
            plan.settings(one.candidate, one.size or one.candidate.smallest, plan.headroom(steps))
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
    """Runs the trials of a round together."""

    plan: CapacityPlan
    points: StoredPoints
    watcher: RoundWatcher

    def run(self, settings: Sequence[Settings]) -> list[JudgedRuns]:
        """The runs with each of these settings, in their order."""
        plan, seeds = self.plan.plan, self.plan.seeds
        before = self.points.num_settled
        outcomes = self.points.run(
            plan,
            [plan.with_seeds(one, seeds) for one in settings],
            lambda settled, _run, _left: self.watcher(len(settings) * len(seeds), settled - before),
        )
        return list(map(JudgedRuns, outcomes))
