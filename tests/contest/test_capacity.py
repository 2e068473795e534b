"""The capacity is the largest rate at which the reference keeps the SLO, found with all seeds."""

import pytest

from sim.contest.capacity import find_capacities
from sim.core.errors import InputError
from sim.workers.executor import TaskOutcome, TaskStatus


class Server:
    """Stands in for runs: a request keeps the SLO up to a rate, which each seed moves a little."""

    def __init__(self, plan, limits_rps, seed_rps=0.0):
        self.plan = plan
        self.limits_rps = limits_rps
        self.seed_rps = seed_rps
        self.num_run = 0

    def run(self, plan, groups, watcher):
        assert plan is self.plan
        return [tuple(map(self.outcome, group)) for group in groups]

    def outcome(self, point):
        self.num_run += 1
        assert point.settings["contestant"] == "fcfs"
        kind = point.settings["workload"]["kind"]
        within = "" if kind == "synthetic" else "parts.0.workload."
        rate = point.settings[f"workload.{within}arrivals.rate_rps"]
        limit = self.limits_rps[kind] + self.seed_rps * (point.settings["seed"] - 2)
        summary = {"slo_attainment": 0.95 if rate <= limit else 0.85, "request_rate": rate}
        return TaskOutcome(str(self.num_run), TaskStatus.DONE, summary)


@pytest.mark.parametrize("limit", [0.7, 20, 333])
def test_capacity_is_found_to_five_percent(planned, limit):
    contest = planned()
    server = Server(contest.plan, {"synthetic": limit, "mix": 6})
    found = find_capacities(contest, server, lambda *_: None)
    assert limit / 1.05 < found["own"].rate_rps <= limit
    assert found["own"].attainment == pytest.approx(0.95)
    assert found["own"].factor == pytest.approx(found["own"].rate_rps / 20, rel=1e-3)
    assert 6 / 1.05 < found["mine"].rate_rps <= 6


def test_all_seeds_decide(planned):
    """The first seed bears 18, the second 20, the third 22; the mean must reach 90 %."""
    contest = planned()
    server = Server(contest.plan, {"synthetic": 20, "mix": 6}, seed_rps=2)
    found = find_capacities(contest, server, lambda *_: None)
    assert 18 < found["own"].rate_rps <= 20
    assert found["own"].attainment == pytest.approx((0.95 + 0.95 + 0.85) / 3)


def test_seeds_after_the_fifth_leave_the_capacity(planned):
    """So a contest with more seeds runs these alone."""
    found = []
    for num_seeds in (5, 8):
        contest = planned(f"contest.seeds={num_seeds}")
        server = Server(contest.plan, {"synthetic": 20, "mix": 6}, seed_rps=2)
        found.append((find_capacities(contest, server, lambda *_: None), server.num_run))
    assert found[0] == found[1]


def test_traffic_that_never_keeps_the_slo_is_named(planned):
    contest = planned()
    server = Server(contest.plan, {"synthetic": 20, "mix": 0})
    with pytest.raises(InputError) as refused:
        find_capacities(contest, server, lambda *_: None)
    assert "under traffic mine fcfs keeps the SLO for at most 85.0 % of requests" in str(
        refused.value
    )
