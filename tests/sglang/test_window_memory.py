"""A GPU's memory is shared out between both pools as SGLang 0.5.23 does it.

The expected numbers are worked out by hand from `HybridSWAPoolConfigurator` and
`compute_swa_request_cap` (model_executor/pool_configurator.py), and GPT-OSS's config.json: 18 of 36
layers have windows of 128 tokens; 8 heads of 64 elements, of 2 bytes each.
"""

import pytest

from sim.core.errors import InputError
from sim.latency.kv_memory import weight_bytes_on_gpu
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

GIB = 2**30
HALF = 18 * 8 * 2 * 64 * 2
_SCENARIO = """
name: windows
model: {model}
hardware: h100-sxm
latency: {{kind: roofline, tp: {tp}}}
workload: {{kind: synthetic, num_requests: 1, arrivals: {{kind: poisson, rate_rps: 1}},
           prompt_tokens: {{kind: constant, value: 9}},
           output_tokens: {{kind: constant, value: 2}}}}
scheduler: {{{keys}}}
"""
MODEL = "sliding_window: model"


def built(keys, *, model="openai/gpt-oss-120b", tp=1):
    text = _SCENARIO.format(model=model, tp=tp, keys=f"page_size: 16, {keys}")
    if "speculative" in keys:
        text += "acceptance: {rate: 0.5}\n"
    return build(load_scenario_text(text))


def memory_of(found):
    return int(80 * GIB * 0.88) - weight_bytes_on_gpu(found.model, 1)


@pytest.mark.parametrize("ratio", [0.8, 0.25])
def test_windows_take_a_share_of_the_other_pool(ratio):
    """The same without the key: then there is one pool in the cache, but two in memory."""
    found = built(f"{MODEL}, swa_full_tokens_ratio: {ratio}")
    tokens = int(memory_of(found) // (HALF + ratio * HALF)) // 16 * 16
    assert found.scheduler.max_total_tokens == tokens
    assert found.scheduler.window.pool_tokens == int(tokens * ratio) // 16 * 16
    alone = built(f"swa_full_tokens_ratio: {ratio}").scheduler
    assert (alone.max_total_tokens, alone.window) == (tokens, None)


@pytest.mark.parametrize(
    ("keys", "of_request", "chunks"),
    [
        ("schedule_policy: fcfs", 127 + 128 + 16 + 16, 2 * 8_192),
        ("disable_overlap_schedule: true", 287, 8_192),
        (
            "speculative_algorithm: NGRAM",
            127 + 128 * 12 + 16 + 2 * 12,
            2 * 8_192,
        ),
    ],
)
def test_windows_without_a_prefix_cache_are_made_for_the_requests(keys, of_request, chunks):
    """What 40 requests hold at most, and the chunks in flight; the rest is the other pool's."""
    found = built(f"{MODEL}, disable_radix_cache: true, max_running_requests: 40, {keys}")
    most = -(-(40 * of_request + chunks + 16) // 16) * 16
    assert found.scheduler.window.pool_tokens == most
    left = memory_of(found) - most * HALF
    assert found.scheduler.max_total_tokens == left // HALF // 16 * 16


def test_windows_of_too_many_requests_are_one_line():
    with pytest.raises(InputError, match="leave no room for other KV"):
        built(f"{MODEL}, disable_radix_cache: true, max_running_requests: 100000")


def test_chunks_of_llama_4_are_windows_as_they_are():
    """Chunks of 8,192 tokens; SGLang takes one token less of a window alone."""
    model = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
    keys = f"{MODEL}, max_total_tokens: 64000"
    assert built(keys, model=model, tp=4).scheduler.window.window == 8_192


def test_gemma_keeps_all_tokens_in_all_layers():
    """SGLang has no second pool for it: 62 layers, 16 heads of 128 elements."""
    found = built("max_running_requests: 8", model="google/gemma-3-27b-it")
    tokens = memory_of(found) // (62 * 16 * 2 * 128 * 2)
    assert found.scheduler.max_total_tokens == tokens // 16 * 16
