"""Servers with a second pool for layers with sliding windows: invariants, and fast-forward."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sim.sglang.cache.window_settings import WindowSettings
from sim.sglang.version_rules import NEWEST
from sim.testing.random_scenarios import random_scenarios, scheduler_configs
from sim.testing.serve import serve


@st.composite
def windowed(draw):
    """A window pool of any size in which each request finds room for its chunks."""
    scenario = draw(random_scenarios(scheduler_configs()))
    config = replace(scenario.config, version=NEWEST, host_cache=None)
    page, window = config.page_size, draw(st.sampled_from((1, 5, 16, 40)))
    interval = draw(st.sampled_from((1, 8, 128)))
    pool = config.pool_tokens
    if config.chunking:
        fewest = 4 * (-(-window // page) * page) + 4 * page + interval + config.chunked_prefill_size
        pool = max(min(pool, fewest), draw(st.integers(1, pool // page)) * page) // page * page
    if pool <= window + 2 * page:
        window = max(pool - 2 * page - 1, 1)
    return replace(scenario, config=replace(config, window=WindowSettings(window, pool, interval)))


@given(windowed())
def test_invariants_any_window_hold_at_every_step(scenario):
    """INV-1, 2, 4, 6, 8, 10, 11, 12, 17: all requests end, in the same way without fast-forward."""
    how = {"host": scenario.host}
    once = serve(scenario.workload, scenario.config, scenario.latencies(), check=True, **how)
    statuses = Counter(once.log.requests.status)
    assert sum(statuses.values()) == scenario.workload.num_requests
    assert set(statuses) <= {"finished", "rejected", "aborted"}
    again = serve(
        scenario.workload, scenario.config, scenario.latencies(), fast_forward=False, **how
    )
    assert once.text == again.text
