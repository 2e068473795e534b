"""Servers with pools for windows and for states, and host memory: invariants, and fast-forward."""

from dataclasses import replace
from math import lcm

from hypothesis import given
from hypothesis import strategies as st

from sim.sglang.cache.settings import HostCacheSettings, StateSettings, WindowSettings
from sim.sglang.version_rules import NEWEST
from tests.properties.test_storage_tier import storage_settings
from tests.support.random_scenarios import random_scenarios, scheduler_configs, with_stages
from tests.support.serve import serve


@st.composite
def perhaps_with_stages(draw, config):
    """The same server, or one with a pipeline of two or three stages."""
    num_stages = draw(st.sampled_from((1, 1, 2, 3)))
    return config if num_stages == 1 else with_stages(config, num_stages)


@st.composite
def windowed(draw):
    """A window pool of any size in which each request finds room for its chunks."""
    scenario = draw(random_scenarios(scheduler_configs()))
    config = replace(scenario.config, version=NEWEST, host_cache=None)
    config = draw(perhaps_with_stages(config))
    page, window = config.page_size, draw(st.sampled_from((1, 5, 16, 40)))
    interval = draw(st.sampled_from((1, 8, 128)))
    if not config.chunking:  # a prompt that fills the pool has no room for windows beside it
        config = replace(config, max_total_tokens=config.max_total_tokens + 3 * page)
    pool = config.pool_tokens
    if config.chunking:
        fewest = 4 * (-(-window // page) * page) + 4 * page + interval + config.chunked_prefill_size
        pool = max(min(pool, fewest), draw(st.integers(1, pool // page)) * page) // page * page
    if pool <= window + 2 * page:
        window = max(pool - 2 * page - 1, 1)
    return replace(scenario, config=replace(config, window=WindowSettings(window, pool, interval)))


@st.composite
def with_states(draw):
    """A pool of states that is just large enough, or larger."""
    scenario = draw(random_scenarios(scheduler_configs()))
    config = replace(scenario.config, version=NEWEST, host_cache=None, disable_radix_cache=False)
    config = draw(perhaps_with_stages(config))
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


@st.composite
def with_host_memory(draw):
    """Host memory below a pool for windows, one of states, or both."""
    scenario = draw(st.one_of(windowed(), with_states()))
    config = replace(scenario.config, disable_radix_cache=False)
    if config.states is not None and draw(st.booleans()):
        page = config.page_size
        longest = max(config.pool_tokens - 2 * page - 1, 1)
        window = min(draw(st.sampled_from((1, 5, 16, 40))), longest)
        settings = WindowSettings(window, config.pool_tokens // page * page, 8)
        config = replace(config, window=settings)
    ratio = draw(st.sampled_from((0.3, 1.0, 4.0)))
    page = config.page_size
    host = HostCacheSettings(
        int(config.pool_tokens * ratio) // page * page + page,
        draw(st.sampled_from((1, 2, None))),
        draw(st.sampled_from((0, 10))),
        copy_ns_per_token=draw(st.sampled_from((1.0, 1013.7, 21173.1))),
        full_share=1.0 if config.window is None else 0.5,
        state_tokens=30.0,
        ratio=ratio,
    )
    return replace(scenario, config=replace(config, host_cache=host))


@st.composite
def with_storage(draw):
    """A store below that. Under write-back SGLang may run out of memory (storage.md)."""
    scenario = draw(with_host_memory())
    config = scenario.config
    host = config.host_cache
    storage = draw(storage_settings(config.page_size))
    uses = host.write_after_uses or 1
    host = replace(host, write_after_uses=uses, storage=storage)
    return replace(scenario, config=replace(config, host_cache=host))


def check_run(scenario):
    """All requests end, in the same way without fast-forward."""
    runs = [
        serve(
            scenario.workload, scenario.config, scenario.latencies(),
            host=scenario.host, fast_forward=fast_forward,
        )
        for fast_forward in (True, False)
    ]  # fmt: skip
    assert runs[0].num_ended == scenario.workload.num_requests
    assert runs[0].text == runs[1].text


@given(windowed())
def test_invariants_any_window_hold_at_every_step(scenario):
    """INV-1, 2, 4, 6, 8, 10, 11, 12, 17."""
    check_run(scenario)


@given(with_states())
def test_invariants_any_pool_of_states_hold_at_every_step(scenario):
    """INV-1, 2, 4, 6, 8, 10, 11, 12, 19."""
    check_run(scenario)


@given(with_host_memory())
def test_invariants_any_pools_over_host_memory_hold_at_every_step(scenario):
    """INV-1, 2, 4, 6, 8, 10, 11, 12, 14, 17, 19."""
    check_run(scenario)


@given(with_storage())
def test_invariants_any_pools_over_a_store_hold_at_every_step(scenario):
    """The same, with fetches and copies to the store under way."""
    check_run(scenario)
