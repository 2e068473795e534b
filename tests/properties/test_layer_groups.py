"""Servers with groups of layers on random traffic: invariants, and what groups must not change."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.vllm.cache.single_type_manager import KVCacheSpec
from sim.vllm.config import VllmConfig
from sim.vllm.version_rules import VERSIONS
from sim.workload.workload import listed
from tests.support.random_scenarios import random_scenarios
from tests.support.random_vllm_configs import vllm_configs
from tests.support.serve import serve
from tests.support.workloads import scripted

FULL = KVCacheSpec("full_attention")
KINDS = (
    FULL,
    KVCacheSpec("sliding_window", 1),
    KVCacheSpec("sliding_window", 17),
    KVCacheSpec("sliding_window", 60),
    KVCacheSpec("chunked_local_attention", 24),
    KVCacheSpec("mamba"),
    KVCacheSpec("mamba", checkpoint_alignment=1),
)


def with_groups(config, groups, interval):
    """The same server with groups, and with blocks for its longest request and some more."""
    rules = VERSIONS[config.version]
    has_states = any(group.kind == "mamba" for group in groups)
    if has_states and config.enable_prefix_caching:
        assume(config.enable_chunked_prefill)
        if not rules.stops_at_junctions:
            groups = tuple(replace(group, checkpoint_alignment=0) for group in groups)
            config = replace(config, long_prefill_token_threshold=0)
            assume(config.max_num_batched_tokens >= config.block_size)
    in_flight = config.num_tokens_in_flight if rules.caps_admission else 1 << 30
    needed = sum(
        group.most_blocks(
            in_flight, config.max_model_len, config.block_size, caches=config.enable_prefix_caching
        )
        for group in groups
    )
    return replace(
        config,
        kv_cache_groups=groups,
        num_gpu_blocks=max(needed, config.num_gpu_blocks // 2) + 1,
        prefix_cache_retention_interval=None if interval is None else interval * config.block_size,
    )


@st.composite
def grouped(draw):
    config = draw(vllm_configs().filter(lambda config: VERSIONS[config.version].speculates))
    groups = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4)))
    config = with_groups(config, groups, draw(st.sampled_from((0, 0, None, 1, 3))))
    return draw(random_scenarios(st.just(config)))


@given(grouped())
def test_invariants_any_groups_hold_at_every_step(scenario):
    """INV-1, 2, 6, 8, 12, 18: all requests end, in the same way without fast-forward."""
    once = serve(scenario.workload, scenario.config, scenario.latencies(), check=True)
    assert once.num_ended == scenario.workload.num_requests
    again = serve(scenario.workload, scenario.config, scenario.latencies(), fast_forward=False)
    assert once.text == again.text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}-{kind.size}")
def test_long_decode_takes_few_runs(kind):
    """A window that moves on leaves blocks behind, and a state is kept after each block."""
    config = VllmConfig(num_gpu_blocks=300, max_model_len=1024, kv_cache_groups=(FULL, kind))
    requests = [scripted(f"r{i}", (i + 1, 40 + i), output=200) for i in range(3)]
    served = serve(listed(requests), config)
    assert len(served.steps) >= 200
    assert len(served.log.steps.num_steps) <= 6
    stepped = serve(listed(requests), config, fast_forward=False, check=False)
    assert served.text == stepped.text


@given(vllm_configs(), st.integers(2, 4), st.data())
def test_several_groups_of_full_attention_decide_as_one_in_a_part_of_the_pool(
    config, num_groups, data
):
    """As long as no cached block is evicted: evicted are blocks, not tokens of all groups."""
    assume(VERSIONS[config.version].speculates)
    blocks = config.num_gpu_blocks - 1
    if config.enable_prefix_caching:
        blocks = 5_000
    config = replace(config, watermark=0.0, prefix_cache_retention_interval=0)
    one = replace(config, kv_cache_groups=(FULL,), num_gpu_blocks=blocks + 1)
    several = replace(
        one, kv_cache_groups=(FULL,) * num_groups, num_gpu_blocks=num_groups * blocks + 1
    )
    scenario = data.draw(random_scenarios(st.just(config)))
    expected = serve(scenario.workload, one, scenario.latencies()).steps
    steps = serve(scenario.workload, several, scenario.latencies()).steps
    for step in expected:
        step.update({name: num_groups * step[name] for name in ("free", "used")})
    assert steps == expected


@given(vllm_configs(), st.data())
def test_full_attention_in_one_group_decides_as_without_groups(config, data):
    """The row by row scheduler decides as the one in lockstep does.

    Blocks are hashed when they are full, not when they are looked for: it must not matter.
    """
    assume(VERSIONS[config.version].speculates)
    scenario = data.draw(random_scenarios(st.just(config)))
    plain = serve(scenario.workload, config, scenario.latencies())
    one = replace(config, kv_cache_groups=(FULL,), prefix_cache_retention_interval=0)
    assert serve(scenario.workload, one, scenario.latencies()).steps == plain.steps
