"""Searches for the capacity: the largest rate at which the reference keeps the SLO."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sim.contest.plan import Contest
from sim.contest.suite import SuiteTraffic
from sim.metrics.summary import Summary
from sim.sweep.capacity.loads import Loads
from sim.sweep.plan import Point
from sim.sweep.store import PointOutcome, StoredPoints, Watcher
from sim.workers.executor import TaskStatus
from sim.workload.config import AgentsConfig, SessionsConfig
from sim.workload.kinds.stats import arrival_rate

# The rate is found to this share.
_STEP = 0.05
# More seeds do not move the capacity: so a contest that is extended by seeds runs these alone.
_MAX_SEEDS = 5


class Capacity(NamedTuple):
    """What the reference bears of some traffic.

    Attributes:
        factor: how much faster than the traffic's own rate.
        rate_rps: requests sent per second at that rate, mean over its seeds; None: not defined.
        attainment: the share of requests within the SLO there, mean over its seeds.
        sessions_per_s: sessions that begin per second there; None: the traffic is no sessions.
    """

    factor: float
    rate_rps: float | None
    attainment: float
    sessions_per_s: float | None = None


@dataclass(slots=True)
class _PolicySearch:
    """The search under one traffic; `runs` are those of each load, with the seeds used now."""

    traffic: SuiteTraffic
    loads: Loads
    runs: dict[int, tuple[Summary, ...]]

    @property
    def next_load(self) -> int | None:
        found = self.loads.next_trials
        return found[0][0] if found else None


def find_capacities(
    contest: Contest, points: StoredPoints, watcher: Watcher
) -> Mapping[str, Capacity]:
    """The capacity under each traffic, by its name.

    The search is made twice: with the first seed alone, which says roughly where it is; then with
    the first five seeds, from there. What is run does not depend on the number of workers.

    Raises:
        InputError: the reference failed, or misses the SLO however slowly requests come.
    """
    searches = [_PolicySearch(traffic, Loads((1,), _STEP), {}) for traffic in contest.traffic]
    num_seeds = min(len(contest.seeds), _MAX_SEEDS)
    for used in (1, num_seeds)[: min(num_seeds, 2)]:
        while open_ones := [one for one in searches if one.next_load is not None]:
            _try(contest, open_ones, used, points, watcher)
        for search in searches:
            _refuse_without(contest, search)
            if used < num_seeds:
                search.loads.begin_again()
                search.runs = {}
    return {search.traffic.name: _capacity(contest, search) for search in searches}


def _try(
    contest: Contest,
    searches: Sequence[_PolicySearch],
    num_seeds: int,
    points: StoredPoints,
    watcher: Watcher,
) -> None:
    """Run the next load of each search."""
    numbers = [search.next_load or 0 for search in searches]
    groups: list[Sequence[Point]] = [
        contest.points(
            contest.section.reference, search.traffic, _factor(search.loads.load((number,)))
        )[:num_seeds]
        for search, number in zip(searches, numbers, strict=True)
    ]
    found = points.run(contest.plan, groups, watcher)
    for search, number, outcomes in zip(searches, numbers, found, strict=True):
        runs = search.runs[number] = tuple(_summary(contest, search, one) for one in outcomes)
        holds = _attainment(runs) >= contest.section.min_slo_attainment
        search.loads.tell((number,), holds=holds)


def _factor(load: float) -> float:
    return float(f"{load:.4g}")


def _summary(contest: Contest, search: _PolicySearch, outcome: PointOutcome) -> Summary:
    if outcome.status is not TaskStatus.DONE or outcome.result is None:
        reason = (
            f"{contest.section.reference} failed under traffic {search.traffic.name}:"
            f" {outcome.message}"
        )
        raise contest.base.error(("contest", "reference"), reason)
    return outcome.result


def _attainment(runs: Sequence[Summary]) -> float:
    return float(sum(run["slo_attainment"] or 0.0 for run in runs)) / len(runs)


def _refuse_without(contest: Contest, search: _PolicySearch) -> None:
    if search.loads.best is None:
        best = max(map(_attainment, search.runs.values()))
        reason = (
            f"under traffic {search.traffic.name} {contest.section.reference} keeps the SLO for at"
            f" most {100 * best:.1f} % of requests, however slowly they come"
        )
        raise contest.base.error(("contest", "min_slo_attainment"), reason)


def _capacity(contest: Contest, search: _PolicySearch) -> Capacity:
    [number] = search.loads.best or (0,)
    factor, runs = _factor(search.loads.load((number,))), search.runs[number]
    rates = [run["request_rate"] for run in runs if run["request_rate"] is not None]
    rate_rps = sum(rates) / len(rates) if rates else None
    [first, *_] = contest.points(contest.section.reference, search.traffic, factor)
    workload = contest.plan.vary(first.settings).scenario.workload
    sessions_per_s = None
    if isinstance(workload, SessionsConfig | AgentsConfig) and workload.arrivals is not None:
        sessions_per_s = arrival_rate(workload.arrivals)
    return Capacity(factor, rate_rps, _attainment(runs), sessions_per_s)
