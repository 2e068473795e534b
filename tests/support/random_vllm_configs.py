"""Hypothesis strategy for settings of family vllm: small budgets and small pools."""

from typing import Any

from hypothesis import strategies as st

from sim.validation import launch_keys
from sim.vllm.config import VllmConfig, VllmSettings
from sim.vllm.section.scheduler import VllmSection
from sim.vllm.version_rules import NEWEST, VERSIONS
from tests.support.random_settings import other_settings

_BLOCK_SIZES = (1, 2, 4, 16, 16, 64)
# Settings that came with 0.33.0.
_LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"prefill_schedule_interval": 2},
    {"prefill_schedule_interval": 5, "watermark": 0.1},
    {"watermark": 0.5, "long_prefill_token_threshold_adaptive": True},
    {"max_num_queued_reqs": 2},
    {"max_num_queued_tokens": 20, "prefill_schedule_interval": 3},
    {"max_num_queued_reqs": 0},
)


@st.composite
def vllm_configs(draw: st.DrawFn) -> VllmConfig:
    """Settings that a scenario file could have, with room for at least a few blocks."""
    block_size = draw(st.sampled_from(_BLOCK_SIZES))
    num_blocks = max(draw(st.integers(60, 600)) // block_size, 4)
    max_model_len = min(num_blocks * block_size, draw(st.sampled_from((10_000, 120, 200))))
    max_num_seqs = draw(st.sampled_from((1, 2, 5, 64)))
    max_num_batched_tokens = max(draw(st.sampled_from((8, 32, 100, 2_048))), max_num_seqs)
    chunked = draw(st.integers(0, 3)) > 0
    if not chunked:
        max_num_batched_tokens = max(max_num_batched_tokens, max_model_len)
    policy = draw(st.sampled_from(("fcfs", "priority")))
    versions = [v for v in VERSIONS if VERSIONS[v].is_known_whole or (chunked and policy == "fcfs")]
    version = draw(st.sampled_from((NEWEST, *versions)))
    limits = draw(st.sampled_from(_LIMITS)) if version == NEWEST else {}
    active = draw(st.sampled_from((None, 1, 3)))
    if active is not None and version == NEWEST:
        limits = {**limits, "max_num_active_seqs": min(active, max_num_seqs)}
    tuned = dict(
        version=version,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        block_size=block_size,
        num_gpu_blocks=num_blocks + 1,
        enable_prefix_caching=draw(st.integers(0, 3)) > 0,
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.sampled_from((0, 0, 5, 16, 50))),
        scheduling_policy=policy,
        async_scheduling=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.booleans()),
        **limits,
    )
    known = (*tuned, *launch_keys(VllmSection).since)
    return VllmConfig(**draw(other_settings(VllmSection, VllmSettings, known)), **tuned)
