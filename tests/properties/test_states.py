"""Servers of models with state-space layers: invariants, and fast-forward."""

from collections import Counter
from dataclasses import replace
from math import lcm

from hypothesis import given
from hypothesis import strategies as st

from sim.sglang.cache.state_settings import StateSettings
from sim.sglang.version_rules import NEWEST
from sim.testing.random_scenarios import random_scenarios, scheduler_configs
from sim.testing.serve import serve


@st.composite
def with_states(draw):
    """A pool of states that is just large enough, or larger."""
    scenario = draw(random_scenarios(scheduler_configs()))
    config = replace(scenario.config, version=NEWEST, host_cache=None, disable_radix_cache=False)
    num_tracked = draw(st.sampled_from((0, 2 if config.overlaps else 1)))
    page = config.page_size if num_tracked else 1
    checkpoint = lcm(draw(st.sampled_from((4, 16))), page)
    more = draw(st.sampled_from((0, 1, 5, 100)))
    states = StateSettings(
        (3 + num_tracked) * config.max_running_requests + more,
        num_tracked,
        checkpoint,
        lcm(checkpoint, draw(st.sampled_from((1, 24)))),
        checkpoint,
    )
    return replace(scenario, config=replace(config, page_size=page, states=states))


@given(with_states())
def test_invariants_any_pool_of_states_hold_at_every_step(scenario):
    """INV-1, 2, 4, 6, 8, 10, 11, 12, 19: all requests end, in the same way without fast-forward."""
    how = {"host": scenario.host}
    once = serve(scenario.workload, scenario.config, scenario.latencies(), check=True, **how)
    statuses = Counter(once.log.requests.status)
    assert sum(statuses.values()) == scenario.workload.num_requests
    assert set(statuses) <= {"finished", "rejected", "aborted"}
    again = serve(
        scenario.workload, scenario.config, scenario.latencies(), fast_forward=False, **how
    )
    assert once.text == again.text
