"""What holds for every vLLM server with KV in CPU memory, for all traffic and sizes."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.core.errors import InputError
from sim.engine.store import StoreSettings
from sim.vllm.config import VllmConfig
from sim.vllm.offload.settings import OffloadSettings, PressureSettings, TierSettings
from sim.workload.workload import listed
from tests.properties.test_host_tier import latencies, one_after_the_other, returning_traffic
from tests.properties.test_layer_groups import grouped
from tests.support.random_scenarios import random_scenarios
from tests.support.random_vllm_configs import vllm_configs
from tests.support.serve import serve
from tests.support.workloads import scripted


@st.composite
def offload_settings(draw):
    """Little CPU memory or much, slow copies or fast ones."""
    return OffloadSettings(
        num_chunks=draw(st.sampled_from((1, 3, 10, 1000))),
        blocks_per_chunk=draw(st.sampled_from((1, 1, 2, 5))),
        eviction_policy=draw(st.sampled_from(("lru", "arc"))),
        store_threshold=draw(st.sampled_from((0, 0, 2))),
        offload_prompt_only=draw(st.booleans()),
        copy_ns_per_token=draw(st.sampled_from((10.0, 20_000.0, 400_000.0))),
        sync_load_tokens=draw(st.sampled_from((0, 40, 1000))),
    )


def run(scenario, version="0.33.0", **changed):
    config = replace(scenario.config, version=version, **changed)
    return serve(scenario.workload, config, scenario.latencies(), check=True)


@given(random_scenarios(vllm_configs(), impatient=True), offload_settings())
def test_offloading_keeps_every_invariant_and_serves_everybody(scenario, settings):
    """Chunks are where the books say after each step, and no more of them than fit."""
    served = run(scenario, offload=settings)
    assert served.num_ended == len(served.log.requests.rid)
    room = settings.num_chunks * settings.blocks_per_chunk * scenario.config.block_size
    assert all(0 <= step["host_used"] <= room for step in served.steps)


@given(random_scenarios(vllm_configs(), impatient=True), offload_settings())
def test_old_offloading_keeps_every_invariant_and_serves_everybody(scenario, settings):
    """Blocks of requests that have ended are kept while they are copied, and are freed then.

    Unless what was loaded leaves no room: then vLLM serves nobody, either.
    """
    settings = replace(settings, offload_prompt_only=False, sync_load_tokens=0)
    lacking = {"long_prefill_token_threshold_adaptive": False}
    try:
        served = run(scenario, version="0.19.0", offload=settings, **lacking)
    except InputError as error:
        reason = str(error)
    else:
        reason = ""
        assert served.num_ended == len(served.log.requests.rid)
    assert not reason or "waiting for ever" in reason


@given(grouped(), offload_settings())
def test_groups_of_layers_keep_every_invariant(scenario, settings):
    config = scenario.config
    has_states = any(group.kind == "mamba" for group in config.kv_cache_groups)
    assume(not has_states or (config.enable_prefix_caching and not settings.sync_load_tokens))
    served = run(scenario, offload=settings)
    assert served.num_ended == len(served.log.requests.rid)


def test_long_decode_beside_cpu_memory_takes_few_runs():
    """Prompts are copied, outputs are not."""
    config = VllmConfig(
        num_gpu_blocks=200, max_model_len=1024, offload=OffloadSettings(num_chunks=100)
    )
    requests = [scripted(f"r{i}", (i + 1, 40 + i), output=500) for i in range(3)]
    served = serve(listed(requests), config)
    assert len(served.steps) == 500
    assert len(served.log.steps.num_steps) <= 6
    assert served.steps[-1]["host_used"] == 3 * 32


@given(random_scenarios(vllm_configs(), impatient=True))
def test_offloading_that_stores_nothing_changes_nothing(scenario):
    """No chunk is offered as often as it would have to be."""
    settings = OffloadSettings(num_chunks=9, store_threshold=10**6)
    # A server with a connector does not free blocks of steps in flight at once.
    config = {"async_scheduling": False, "in_lockstep": False}
    with_memory = run(scenario, offload=settings, **config).steps
    for step in with_memory:
        assert (step.pop("loaded"), step.pop("host_used")) == ([], 0)
    assert with_memory == run(scenario, **config).steps


@st.composite
def tiers(draw):
    """Stores of all sizes and speeds, some of which fail."""
    ns = st.sampled_from((0.0, 20_000.0, 3e6))
    share = st.sampled_from((0.0, 0.0, 0.3, 1.0))
    store = StoreSettings(
        capacity_pages=draw(st.sampled_from((None, 1, 9))),
        lookup_ns=draw(ns),
        read_latency_ns=draw(ns),
        write_latency_ns=draw(ns),
        read_ns_per_page=draw(ns),
        write_ns_per_page=draw(ns),
        pages_at_once=draw(st.sampled_from((1, 128))),
        failed_read_share=draw(share),
        failed_write_share=draw(share),
    )
    pressure = PressureSettings(
        high_water_s=draw(st.sampled_from((1e-3, 0.1))),
        low_water_s=draw(st.sampled_from((1e-4, 1e-3))),
        warmup_completions=draw(st.sampled_from((1, 10))),
        drops_all=draw(st.booleans()),
        chunk_bytes=1 << 20,
    )
    return TierSettings(
        kind=draw(st.sampled_from(("fs", "obj"))),
        n_read_threads=draw(st.sampled_from((1, 16))),
        n_write_threads=draw(st.sampled_from((1, 16))),
        pressure=draw(st.sampled_from((None, pressure))),
        store=store,
    )


def several_tiers():
    return st.lists(tiers(), min_size=1, max_size=3).map(tuple)


@st.composite
def tiered(draw):
    offload = draw(offload_settings())
    return replace(offload, store_threshold=0, tiers=draw(several_tiers()))


@given(random_scenarios(vllm_configs(), impatient=True), tiered())
def test_tiers_keep_every_invariant_and_serve_everybody(scenario, settings):
    """Each chunk is where the books say: copied, promoted, kept for a store, or free to leave."""
    served = run(scenario, offload=settings)
    assert served.num_ended == len(served.log.requests.rid)
    room = settings.num_chunks * settings.blocks_per_chunk * scenario.config.block_size
    assert all(0 <= step["host_used"] <= room for step in served.steps)
    assert run(scenario, offload=settings).text == served.text


@given(grouped(), tiered())
def test_tiers_of_groups_of_layers_keep_every_invariant(scenario, settings):
    config = scenario.config
    has_states = any(group.kind == "mamba" for group in config.kv_cache_groups)
    assume(not has_states or (config.enable_prefix_caching and not settings.sync_load_tokens))
    served = run(scenario, offload=settings)
    assert served.num_ended == len(served.log.requests.rid)


def cached_tokens(requests, offload, **settings):
    """What each request finds on the GPU and elsewhere, one request at a time."""
    config = VllmConfig(
        num_gpu_blocks=21, block_size=16, max_model_len=320, offload=offload, **settings
    )
    served = serve(one_after_the_other(requests), config, latencies(), check=True)
    return served.log.requests.cached_tokens


@given(returning_traffic(), st.booleans(), st.sampled_from(("fs", "obj")))
def test_store_without_bandwidth_is_no_store(requests, fails, kind):
    """Nothing is ever written: all writes fail, or the first one takes for ever."""
    slow = StoreSettings(write_ns_per_page=1e15, lookup_ns=1000.0)
    store = StoreSettings(failed_write_share=1.0) if fails else slow
    # Chunks that are being written stay in CPU memory: it has room for all.
    memory = OffloadSettings(num_chunks=10_000, offload_prompt_only=False)
    tier = TierSettings(kind=kind, store=store)
    with_store = cached_tokens(requests, replace(memory, tiers=(tier,)))
    assert with_store.tolist() == cached_tokens(requests, memory).tolist()


@given(returning_traffic(), st.sampled_from(("lru", "arc")), st.sampled_from(("fs", "obj")))
def test_endless_store_is_a_larger_cpu_memory_with_a_wait(requests, policy, kind):
    """CPU memory has room for two prompts: whatever was ever there is found below."""
    store = StoreSettings(lookup_ns=1000.0, read_ns_per_page=500.0, write_ns_per_page=10.0)
    small = OffloadSettings(num_chunks=40, eviction_policy=policy, offload_prompt_only=False)
    tier = TierSettings(kind=kind, store=store)
    below = cached_tokens(requests, replace(small, tiers=(tier,)))
    endless = cached_tokens(requests, replace(small, num_chunks=10_000))
    assert below.tolist() == endless.tolist()
    assert np.all(below >= cached_tokens(requests, None))
