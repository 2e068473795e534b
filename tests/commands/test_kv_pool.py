"""A run says how large its KV pools are, and what that follows from."""

import json

import pytest

KEY = "scheduler.max_total_tokens"
OF_MI300X = "what gpu_memory_utilization 0.92 of the memory of mi300x leaves"
# 92 % of 192 GiB are 176.6 GiB; 7.5 GiB of weights leave room for this many tokens of 32 KiB.
TOKENS = "5,543,072 tokens"
# Settings, and what a run prints of its pool.
POOLS = [
    (
        ("scheduler.max_total_tokens=4096",),
        f"max_total_num_tokens=4096 (256 pages of 16): {KEY}",
    ),
    (
        ("scheduler={family: vllm, num_gpu_blocks_override: 300}",),
        "GPU KV cache size: 4,800 tokens (300 pages of 16): scheduler.num_gpu_blocks_override",
    ),
    (
        ("model=llama-3.1-8b", "scheduler={max_total_tokens: 8192}"),
        # 8192 tokens of 32 layers with 8 KV heads of 128 elements of 16 bits, K and V.
        f"max_total_num_tokens=8192 (8,192 pages of 1, 1.00 GiB of each GPU): {KEY}",
    ),
    (
        (
            *("model=llama-3.1-8b", "hardware=mi300x", "latency={kind: roofline, tp: 2}"),
            "scheduler={family: vllm, kv_cache_dtype: fp8}",
        ),
        f"GPU KV cache size: {TOKENS} (346,442 pages of 16, 169.2 GiB of each GPU): {OF_MI300X}",
    ),
    (
        # The windows of some layers do not keep every token.
        ("model=openai/gpt-oss-120b", "scheduler={max_total_tokens: 8192}"),
        f"max_total_num_tokens=8192 (8,192 pages of 1): {KEY}",
    ),
    (
        ("latency.dp=2", "scheduler={max_total_tokens: 8192}"),
        f"max_total_num_tokens=8192 (8,192 pages of 1, each of 2 ranks): {KEY}",
    ),
]


@pytest.mark.parametrize(("settings", "line"), POOLS)
def test_run_prints_the_size_of_the_pool_as_the_engine_does(simulate, scenario, settings, line):
    """In the text, and in the summary."""
    options = [part for text in settings for part in ("--set", text)]
    assert line in simulate("run", scenario, *options).out.splitlines()
    pool = json.loads(simulate("run", scenario, *options, "--format", "json").out)["kv_pool"]
    assert pool["tokens"] == pool["pages"] * pool["page_size"]
    assert line.startswith(pool["printed"])
    assert line.endswith(pool["source"])


def test_run_prints_the_pool_of_each_kind_of_server(simulate, scenario):
    """With server pools, each line begins with the name of one."""
    own = "role: both, scheduler: {max_total_tokens"
    pools = f"{{one: {{{own}: 4096, page_size: 16}}}}, other: {{{own}: 8192}}}}}}"
    ended = simulate("run", scenario, "--set", f"pools={pools}")
    lines = ended.out.splitlines()
    assert f"one: max_total_num_tokens=4096 (256 pages of 16): {KEY}" in lines
    assert f"other: max_total_num_tokens=8192 (512 pages of 16): {KEY}" in lines
