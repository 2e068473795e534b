"""Bytes of the KV that is sent to another server."""

from pathlib import Path

import pytest

from sim.latency.architectures.model_key import load_model_shape
from sim.latency.kv_memory import kv_bytes


def shape(name):
    return load_model_shape(name, Path())


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("deepseek-ai/DeepSeek-V3", 70_272),
        ("Qwen/Qwen2.5-72B-Instruct", 327_680),
        ("meta-llama/Llama-3.1-405B", 516_096),
    ],
)
def test_bytes_of_a_token_are_those_that_deepseek_published(name, published):
    """ "Insights into DeepSeek-V3" (arXiv 2505.09343), table 1."""
    assert kv_bytes(shape(name), 1) == (published, 0, ())


def test_latent_kv_is_sent_to_each_gpu_and_heads_are_shared_out():
    latent = shape("deepseek-ai/DeepSeek-V3")
    assert kv_bytes(latent, 8).per_token == 8 * 70_272
    # 8 KV heads.
    heads = shape("llama-3.1-70b")
    assert kv_bytes(heads, 1) == kv_bytes(heads, 4) == kv_bytes(heads, 8)
    assert kv_bytes(heads, 16).per_token == 2 * kv_bytes(heads, 8).per_token


@pytest.mark.parametrize("name", ["Qwen/Qwen3-Next-80B-A3B-Instruct", "openai/gpt-oss-120b"])
def test_nothing_that_a_gpu_keeps_is_left_out(name):
    model = shape(name)
    for tp in (1, 2, 8):
        sizes = kv_bytes(model, tp)
        in_windows = sum(num_bytes for _, num_bytes in sizes.windows)
        assert sizes.per_token + in_windows == tp * model.kv_bytes_on_gpu(tp)
        assert sizes.per_request == model.state_bytes


def test_windows_are_apart():
    """Half of the 36 layers of gpt-oss-120b have a window of 128 tokens: 2 x 8 heads x 64 x 2 B."""
    assert kv_bytes(shape("openai/gpt-oss-120b"), 1) == (18 * 2048, 0, ((128, 18 * 2048),))
