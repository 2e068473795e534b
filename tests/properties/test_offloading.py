"""What holds for every vLLM server with KV in CPU memory, for all traffic and sizes."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from sim.vllm.offload.settings import OffloadSettings
from tests.properties.test_layer_groups import grouped
from tests.support.random_scenarios import random_scenarios
from tests.support.random_vllm_configs import vllm_configs
from tests.support.serve import serve


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


def run(scenario, **changed):
    config = replace(scenario.config, version="0.33.0", **changed)
    return serve(scenario.workload, config, scenario.latencies(), check=True)


@given(random_scenarios(vllm_configs(), impatient=True), offload_settings())
def test_offloading_keeps_every_invariant_and_serves_everybody(scenario, settings):
    """Chunks are where the books say after each step, and no more of them than fit."""
    served = run(scenario, offload=settings)
    assert served.num_ended == len(served.log.requests.rid)
    room = settings.num_chunks * settings.blocks_per_chunk * scenario.config.block_size
    assert all(0 <= step["host_used"] <= room for step in served.steps)


@given(grouped(), offload_settings())
def test_groups_of_layers_keep_every_invariant(scenario, settings):
    config = scenario.config
    has_states = any(group.kind == "mamba" for group in config.kv_cache_groups)
    assume(not has_states or (config.enable_prefix_caching and not settings.sync_load_tokens))
    served = run(scenario, offload=settings)
    assert served.num_ended == len(served.log.requests.rid)


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
