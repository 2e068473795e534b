"""Searches for the cheapest deployments that meet the SLO, and for how much more traffic they take.

A plan may ask instead which deployments bear the most traffic, with as many servers as are allowed.
This is the same search, but it varies the load instead of the number of servers.

With several seeds the search is made twice: with the first seed alone, which says roughly how many
servers each candidate needs; then with all seeds, which begins at these numbers and decides.

All candidates that can still be among the cheapest are tried in rounds: the trials of a round are
run together, and their results decide on the next round. So the result does not depend on the
number of workers, and a search that was killed and is run again needs no finished trial again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sim.scenario.search_sections import PlanSection
from sim.sweep.capacity.candidates import Candidate, Size, reason_of
from sim.sweep.capacity.deployments import DeploymentVerdict, TriedDeployment
from sim.sweep.capacity.front import TriedLoad
from sim.sweep.capacity.judged_runs import JudgedRuns
from sim.sweep.capacity.loads import Loads, largest_size
from sim.sweep.capacity.plan import CapacityPlan
from sim.sweep.capacity.sizes import LEAST_SHARE, Bracket, Replicas, Splits
from sim.sweep.capacity.trials import RoundWatcher, Trial, TrialRuns
from sim.sweep.store import PointOutcome, StoredPoints
from sim.workers.executor import TaskStatus


@dataclass(frozen=True, slots=True)
class FoundDeployments:
    """What a search found.

    Attributes:
        deployments: all candidates; those that meet the SLO come first, the best of them first.
        loads: every deployment and load that was simulated, in the order of the candidates.
    """

    deployments: list[TriedDeployment]
    loads: list[TriedLoad]


@dataclass(slots=True)
class _Search:
    """The search for a candidate's numbers of servers, or for the load that it bears.

    Attributes:
        sizes: chooses the sizes, or the numbers of the loads, to try.
        judged: the runs with each size, of the seeds that are searched with now.
        fault: the first run without a result, which ends the search.
        is_simulated: whether any run was made.
    """

    section: PlanSection
    candidate: Candidate
    sizes: Replicas | Splits | Loads
    judged: dict[Size, JudgedRuns] = field(default_factory=dict)
    fault: PointOutcome | None = None
    is_simulated: bool = False

    @staticmethod
    def of(plan: CapacityPlan, candidate: Candidate) -> "_Search":
        if not plan.is_for_load:
            do_both = candidate.decoders is None
            busy = plan.busy(candidate)
            sizes = Replicas(candidate.max_replicas, *busy) if do_both else Splits(candidate)
            return _Search(plan.section, candidate, sizes)
        busy = plan.busy(candidate)
        size = largest_size(candidate, busy)
        shares = [num / share for num, share in zip(size, busy, strict=True) if share]
        step = plan.section.headroom_step
        if not shares:
            return _Search(plan.section, candidate, Loads(size, step))
        first = min(shares)
        return _Search(plan.section, candidate, Loads(size, step, first, first / LEAST_SHARE))

    def trial(self, size: Size) -> Trial:
        """What is simulated for a size, or for the number of a load."""
        if isinstance(self.sizes, Loads):
            return Trial(self.candidate, self.sizes.size, self.sizes.load(size))
        learns = isinstance(self.sizes, Replicas) and self.sizes.learns_busy(size)
        return Trial(self.candidate, size, 1.0, num_whole=1 if learns else 0)

    def _cost(self, size: Size) -> float:
        """The cost of a size. Of a load: minus its number, because a larger load is better."""
        return -size[0] if isinstance(self.sizes, Loads) else self.candidate.cost(size)

    @property
    def least_cost(self) -> float:
        """The least cost that is still possible."""
        return self._cost(self.sizes.best_possible)

    @property
    def known_cost(self) -> float:
        """The cost of the best size that met the SLO; infinity: there is none that may be used."""
        best = self.sizes.best
        return float("inf") if best is None or self.draws_too_much else self._cost(best)

    @property
    def draws_too_much(self) -> bool:
        """Whether the best size that met the SLO draws more power than is allowed.

        While smaller sizes are left to try, one of them may not.
        """
        judged = None if self.sizes.best is None else self.judged.get(self.sizes.best)
        return judged is not None and not self.is_open and judged.exceeds(self.section)

    @property
    def is_open(self) -> bool:
        """Whether something is left to try."""
        return self.fault is None and bool(self.sizes.next_trials)

    def begin_again(self) -> None:
        """Search again, with other seeds, from what was found; unless all sizes missed the SLO."""
        if self.is_open or self.sizes.best is not None:
            self.judged = {}
            self.sizes.begin_again()


def find_deployments(
    plan: CapacityPlan, points: StoredPoints, watcher: RoundWatcher
) -> FoundDeployments:
    """Judge all candidates.

    Raises:
        InputError: an outcome cannot be stored, or the executor cannot be used.
    """
    # `first_seed` is empty if there is only one seed.
    tried: dict[tuple[int, Size, float], TriedLoad] = {}
    all_seeds, *first_seed = (
        TrialRuns(plan, points, watcher, num_seeds, tried)
        for num_seeds in (len(plan.seeds), 1)[: len(plan.seeds)]
    )
    refused = [
        TriedDeployment(
            candidate=one,
            verdict=DeploymentVerdict.CANNOT_RUN,
            reason=one.reason,
            is_simulated=False,
        )
        for one in plan.candidates
        if one.reason is not None
    ]
    searches = [_Search.of(plan, one) for one in plan.candidates if one.reason is None]
    for runs in first_seed:
        _find_sizes(plan, searches, runs)
        for search in searches:
            search.begin_again()
    _find_sizes(plan, searches, all_seeds)
    found = [_deployment(plan, search) for search in searches]
    meeting = sorted(
        (one for one in found if one.verdict is DeploymentVerdict.MEETS), key=TriedDeployment.rank
    )
    first = shown_of(plan, meeting)
    has_headroom = plan.is_scalable and not plan.is_for_load and plan.num_headroom_steps > 0
    shown = _with_headroom(plan, first, (*first_seed, all_seeds)) if has_headroom else first
    dearer = [one for one in meeting if one not in first]
    others = [one for one in found if one.verdict is not DeploymentVerdict.MEETS]
    by_number = sorted([*others, *refused], key=lambda one: one.candidate.number)
    rest = sorted(by_number, key=lambda one: list(DeploymentVerdict).index(one.verdict))
    ordered = [*sorted(shown, key=TriedDeployment.rank), *dearer, *rest]
    if meeting:
        ordered[0] = _with_neighbours(ordered[0], all_seeds)
    if plan.section.memory is not None and meeting:
        ordered = _compared(ordered, all_seeds)
    return FoundDeployments(ordered, [tried[place] for place in sorted(tried)])


def shown_of(plan: CapacityPlan, found: Sequence[TriedDeployment]) -> list[TriedDeployment]:
    """The deployments that are shown, of all that were found: they meet the SLO.

    They are the `num_shown` best whose replicas prefill and decode, and as many disaggregated.
    """
    num = plan.section.num_shown
    meeting = [one for one in found if one.verdict is DeploymentVerdict.MEETS]
    both = [one for one in meeting if one.candidate.decoders is None][:num]
    disaggregated = [one for one in meeting if one.candidate.decoders is not None][:num]
    return [one for one in meeting if one in both or one in disaggregated]


def _find_sizes(plan: CapacityPlan, searches: Sequence[_Search], runs: TrialRuns) -> None:
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
        found = runs.run([search.trial(size) for search, size in trials])
        for (search, size), judged in zip(trials, found, strict=True):
            search.fault = search.fault or judged.fault
            search.judged[size] = judged
            search.is_simulated = True
            if judged.fault is None:
                holds = judged.attains(plan.section)
                search.sizes.tell(size, holds=holds, busy=judged.num_busy(sum(size)))


def _tried_next(plan: CapacityPlan, searches: Sequence[_Search]) -> list[_Search]:
    """The searches of one kind that go on: those that can be among the best.

    Step times, or other seeds, say roughly what each costs. So those that look best are tried
    first; most others never need a trial.
    """
    num_shown = plan.section.num_shown
    limit = _nth([one.known_cost for one in searches if one.fault is None], num_shown)
    going_on = [one for one in searches if one.is_open and one.least_cost <= limit]
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
        verdict, found = DeploymentVerdict.DEARER, sizes.best_possible
        verdict = DeploymentVerdict.WEAKER if plan.is_for_load else verdict
    elif sizes.best is None:
        verdict, found = DeploymentVerdict.MISSES, sizes.nearest_failed
    else:
        verdict, found = DeploymentVerdict.MEETS, sizes.best
    _, size, load, _ = search.trial(found)
    judged = search.judged.get(found)
    may_exceed = verdict is DeploymentVerdict.MEETS or (plan.is_for_load and not search.is_open)
    if judged is not None and may_exceed and judged.exceeds(plan.section):
        verdict = DeploymentVerdict.TOO_MUCH_POWER
    deployment = TriedDeployment(
        candidate=candidate,
        verdict=verdict,
        size=size,
        load=load,
        judged=judged,
        is_simulated=search.is_simulated,
    )
    if isinstance(sizes, Loads):
        more = (found[0] + 1,)
        if more not in search.judged:
            return deployment
        return replace(deployment, more=(sizes.load(more), search.judged[more]))
    fewer = [(*size[:kind], size[kind] - 1, *size[kind + 1 :]) for kind in range(len(size))]
    known = tuple((one, search.judged[one]) for one in fewer if one in search.judged)
    return replace(deployment, fewer=known)


def _with_neighbours(first: TriedDeployment, runs: TrialRuns) -> TriedDeployment:
    """The first deployment, with whole runs of one server fewer and of more load, if it has any.

    Their metrics are shown.
    """

    def whole(size: Size, load: float) -> JudgedRuns:
        trial = Trial(first.candidate, size, load, num_whole=runs.num_seeds)
        return runs.run([trial])[0]

    fewer = tuple((size, whole(size, first.load)) for size, _ in first.fewer)
    if first.more is None:
        return replace(first, fewer=fewer)
    [load, _] = first.more
    return replace(first, fewer=fewer, more=(load, whole(first.size or (), load)))


def _compared(deployments: Sequence[TriedDeployment], runs: TrialRuns) -> list[TriedDeployment]:
    """The deployments; those on the GPUs of the first one also with runs at the first one's size.

    So sizes of memory can be compared with each other.
    """
    first = deployments[0]
    gpus, size = (first.candidate.gpu, first.candidate.degrees), first.size or ()
    alike = [
        one
        for one in deployments
        if one.is_simulated and (one.candidate.gpu, one.candidate.degrees) == gpus
    ]
    judged = runs.run([
        Trial(one.candidate, size, first.load, num_whole=runs.num_seeds) for one in alike
    ])  # fmt: skip
    found = {id(one): each for one, each in zip(alike, judged, strict=True) if each.fault is None}
    return [replace(one, alike=found.get(id(one))) for one in deployments]


def _with_headroom(
    plan: CapacityPlan, deployments: Sequence[TriedDeployment], all_runs: Sequence[TrialRuns]
) -> list[TriedDeployment]:
    """The deployments with the most added traffic that still meets the SLO.

    `all_runs`: the first seed alone, if there are more; then all seeds.
    """
    brackets = [Bracket(plan.num_headroom_steps, _first_headroom(plan, one)) for one in deployments]
    for number, runs in enumerate(all_runs):
        if number:
            # With all seeds, begin where the first seed alone misses the SLO.
            brackets = [Bracket(one.limit, one.high or one.low + 1) for one in brackets]
        _find_headroom(plan, deployments, brackets, runs)
    return [
        replace(one, headroom=plan.headroom(bracket.low), is_headroom_open=bracket.high is None)
        for one, bracket in zip(deployments, brackets, strict=True)
    ]


def _first_headroom(plan: CapacityPlan, deployment: TriedDeployment) -> int:
    """The headroom that step times promise, as a number of `headroom_step`s, at least 1."""
    busy, size = plan.busy(deployment.candidate), deployment.size or ()
    spare = min((num / each for num, each in zip(size, busy, strict=True) if each), default=1.0)
    steps = round((spare - 1) / plan.section.headroom_step)
    return max(1, min(steps, plan.num_headroom_steps))


def _find_headroom(
    plan: CapacityPlan,
    deployments: Sequence[TriedDeployment],
    brackets: Sequence[Bracket],
    runs: TrialRuns,
) -> None:
    """Find the smallest number of headroom steps with which each deployment misses the SLO."""
    while trials := [
        (one, bracket, steps)
        for one, bracket in zip(deployments, brackets, strict=True)
        if (steps := bracket.next_trial) is not None
    ]:
        found = runs.run([
            Trial(one.candidate, one.size or one.candidate.smallest, 1 + plan.headroom(steps))
            for one, _, steps in trials
        ])  # fmt: skip
        for (_, bracket, steps), judged in zip(trials, found, strict=True):
            attains = judged.fault is None and judged.attains(plan.section)
            attains = attains and not judged.exceeds(plan.section)
            bracket.tell(steps, holds=not attains)
