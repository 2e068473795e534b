"""INV-12: passing many decode steps at once leaves the same log as taking them one by one."""

import pytest
from hypothesis import given

from sim.engine.page_pool import PageIds
from sim.metrics.rates import occupancy_metrics
from sim.sglang.config import SchedulerConfig
from sim.testing.random_scenarios import RandomScenario, random_scenarios
from sim.testing.serve import serve
from sim.testing.workloads import ListWorkload, scripted


def outcome(scenario: RandomScenario, **how):
    served = serve(
        scenario.workload,
        scenario.config,
        scenario.latencies(),
        host=scenario.host,
        num_front_ends=scenario.front_ends,
        check=False,
        **how,
    )
    columns = served.log.requests
    gaps = served.log.token_gaps
    return (
        served.text,
        columns.scheduled_ns.tolist(),
        columns.output_tokens.tolist(),
        gaps.gap_ns.tolist(),
        gaps.count.tolist(),
        occupancy_metrics(served.log.steps),
    )


@given(random_scenarios(phases=True))
def test_fast_forward_any_scenario_leaves_the_same_log(scenario):
    """Every byte of the decision log, every token gap, the occupancy; all families and policies."""
    assert outcome(scenario) == outcome(scenario, fast_forward=False)


@given(random_scenarios(phases=True))
def test_page_pools_any_scenario_leave_the_same_log(scenario):
    """Decisions do not depend on whether pages have names."""
    assert outcome(scenario) == outcome(scenario, pool=PageIds)


def test_fast_forward_long_decode_takes_few_runs():
    """A lone request's decode steps pass in one run, not one by one."""
    request = scripted("r", (1, 100), output=500)
    served = serve(ListWorkload([request]), SchedulerConfig())
    assert len(served.steps) == 500
    assert len(served.log.steps.num_steps) <= 3


@pytest.mark.parametrize("overlap", [False, True])
def test_fast_forward_arrival_within_a_run_is_seen_at_the_next_decision(overlap):
    """A request that arrives while steps pass starts when it would have, step by step."""
    first = scripted("a", (1, 100), output=400)
    second = scripted("b", (2, 50), output=3, arrival_ns=777_777_777)
    config = SchedulerConfig(disable_overlap_schedule=not overlap)
    served = serve(ListWorkload([first, second]), config)
    waited_ns = served.request("b")["scheduled_ns"] - 777_777_777
    assert 0 <= waited_ns < 6_000_000
