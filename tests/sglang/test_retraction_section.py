"""How much host memory a decode server has for the KV of retracted requests."""

from pathlib import Path

import pytest

from sim.core.errors import InputError
from sim.latency.architectures.model_key import load_model_shape
from sim.sglang.section.scheduler import SglangSection

POOL = 10_000


def decode_tokens(*, model=None, role="decode", **keys):
    section = SglangSection.model_validate({"family": "sglang", **keys})
    shape = None if model is None else load_model_shape(model, Path())
    section = section.of_role(role)
    return section.with_role(section.config(POOL), role, shape).retraction_host_tokens


@pytest.mark.parametrize(
    ("keys", "tokens"),
    [
        # A fifth of the pool, and a page.
        ({"context_length": 1000}, 2000 + 1),
        ({"context_length": 1000, "page_size": 16}, 2000 + 16),
        # The longest request has 2,500 + 3 tokens with KV: 157 pages of 16.
        ({"context_length": 2500}, 2503 + 1),
        ({"context_length": 2500, "page_size": 16}, 157 * 16 + 16),
        # No request is longer than the pool.
        ({"context_length": 99_999, "page_size": 16}, POOL + 16),
        ({"context_length": 1000, "hicache_ratio": 0.5}, 5000 + 1),
        ({"disaggregation_decode_retraction_backup": "none"}, 0),
        ({"disaggregation_decode_retraction_backup": "cpu_tensor"}, None),
        # Where SGLang infers cpu_tensor.
        ({"disaggregation_decode_enable_radix_cache": True}, None),
        ({"enable_priority_scheduling": True}, None),
        (
            {
                "enable_priority_scheduling": True,
                "disable_priority_preemption": True,
                "context_length": 1000,
            },
            2001,
        ),
    ],
)
def test_retraction_size_of_host_memory(keys, tokens):
    assert decode_tokens(**keys) == tokens


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("Qwen/Qwen3-32B", 2001),
        ("deepseek-ai/DeepSeek-V3", None),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", None),
    ],
)
def test_retraction_host_pool_is_for_models_with_plain_kv(model, tokens):
    assert decode_tokens(model=model, context_length=1000) == tokens


HOST_POOL = {"disaggregation_decode_retraction_backup": "host_pool"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            HOST_POOL | {"disaggregation_decode_enable_radix_cache": True},
            (
                "scheduler.disaggregation_decode_retraction_backup: host_pool does not go with"
                " disaggregation_decode_enable_radix_cache"
            ),
        ),
        (
            HOST_POOL | {"enable_priority_scheduling": True},
            (
                "scheduler.disaggregation_decode_retraction_backup: host_pool does not go with"
                " enable_priority_scheduling without disable_priority_preemption"
            ),
        ),
        (
            HOST_POOL | {"model": "deepseek-ai/DeepSeek-V3"},
            (
                "scheduler.disaggregation_decode_retraction_backup: host_pool does not go with"
                " models with latent attention"
            ),
        ),
        (
            {"hicache_ratio": 1.0, "disaggregation_decode_retraction_backup": "none"},
            (
                "scheduler.hicache_ratio: is the size of the host pool, but"
                " disaggregation_decode_retraction_backup is none"
            ),
        ),
        (
            {"hicache_ratio": 1.0, "role": "both"},
            "scheduler.hicache_ratio: is for servers of role decode: give host_cache.ratio",
        ),
        (
            {"hicache_ratio": 1.0, "role": "prefill"},
            "scheduler.hicache_ratio: is for servers of role decode: give host_cache.ratio",
        ),
    ],
)
def test_retraction_settings_that_do_not_go_together(keys, message):
    with pytest.raises(InputError) as caught:
        decode_tokens(**keys)
    assert str(caught.value) == message
