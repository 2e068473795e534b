"""The keys of groups of layers: what they make of a model, and what is refused in one line."""

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

_SCENARIO = """
name: groups
latency: {latency}
workload: {{kind: synthetic, num_requests: 1, arrivals: {{kind: poisson, rate_rps: 1}},
           prompt_tokens: {{kind: constant, value: 9}},
           output_tokens: {{kind: constant, value: 2}}}}
{more}
scheduler: {{family: vllm, kv_cache_groups: {groups}, {keys}}}
"""
_LINEAR = (
    "{kind: linear, step_s: 0.01, per_prefill_token_s: 0, per_decode_request_s: 0,"
    " per_context_token_s: 0}"
)
_WINDOW = "{kind: sliding_window, sliding_window: 64}"
_STATE = "{kind: mamba}"


def _settings(groups, keys="num_gpu_blocks_override: 200", more="", latency=_LINEAR):
    text = _SCENARIO.format(groups=groups, keys=keys, more=more, latency=latency)
    return build(load_scenario_text(text)).scheduler


@pytest.mark.parametrize(
    ("model", "kinds", "num_layers", "kv_bytes"),
    [
        # 52 layers with windows and 10 without: six groups of at most 10 layers, and one of 10.
        (
            "google/gemma-3-27b-it",
            {("sliding_window", 1024): 6, ("full_attention", 0): 1},
            10,
            8192,
        ),
        ("openai/gpt-oss-20b", {("sliding_window", 128): 1, ("full_attention", 0): 1}, 12, 2048),
        (
            "meta-llama/Llama-4-Scout-17B-16E-Instruct",
            {("chunked_local_attention", 8192): 3, ("full_attention", 0): 1},
            12,
            4096,
        ),
    ],
)
def test_groups_of_model_have_equally_many_layers(model, kinds, num_layers, kv_bytes):
    """And a block has the KV of its tokens in the layers of one group."""
    where = f"model: {model}\nhardware: b300-sxm"
    config = _settings("model", "max_model_len: 9000", where, "{kind: roofline}")
    found = [(group.kind, group.size) for group in config.kv_cache_groups]
    assert {kind: found.count(kind) for kind in set(found)} == kinds
    blocks = {}
    for size in (16, 32):
        keys = f"max_model_len: 9000, block_size: {size}"
        blocks[size] = _settings("model", keys, where, "{kind: roofline}").num_gpu_blocks
    # With half as large blocks there are twice as many in the same memory.
    assert blocks[16] in (2 * blocks[32], 2 * blocks[32] + 1)
    room = blocks[16] * 16 * num_layers * kv_bytes
    assert 0.1 < room / (288 * 2**30) < 0.92


def test_model_without_windows_has_no_groups():
    assert _settings("model", more="model: Qwen/Qwen3-8B").kv_cache_groups == ()


def test_longest_request_is_what_all_groups_hold_blocks_for():
    """199 blocks: two steps of 512 tokens in flight are 69 blocks with the window; 130 are left."""
    config = _settings(f"[{{kind: full_attention}}, {_WINDOW}]", "num_gpu_blocks_override: 200,"
                       " max_num_batched_tokens: 512, async_scheduling: true")  # fmt: skip
    assert config.max_model_len == (199 - 69) * 16


_DRAFTS = "speculative_config: {method: eagle, num_speculative_tokens: 1}"
_OLD = "version: '0.19', num_gpu_blocks_override: 200"


@pytest.mark.parametrize(
    ("groups", "keys", "reason"),
    [
        ("[{kind: sliding_window}]", "", "kind sliding_window needs sliding_window"),
        ("[{kind: mamba, sliding_window: 3}]", "", "kind mamba has no sliding_window"),
        ("[{kind: full_attention, prefill_checkpoint_alignment: 1}]", "",
         "kind full_attention has no prefill_checkpoint_alignment"),
        (f"[{_WINDOW}]", "prefix_cache_retention_interval: 8",
         "8 is no multiple of block_size 16"),
        ("[{kind: full_attention}]", "prefix_cache_retention_interval: 16",
         "prefix_cache_retention_interval needs a group of kind sliding_window or mamba"),
        ("null", "prefix_cache_retention_interval: 16",
         "prefix_cache_retention_interval needs kv_cache_groups"),
        (f"[{_WINDOW}]", f"{_OLD}, prefix_cache_retention_interval: 16",
         "vLLM 0.19.0 has no prefix_cache_retention_interval"),
        (f"[{_WINDOW}]", "version: '0.14', num_gpu_blocks_override: 200",
         "kv_cache_groups is not simulated with version 0.14.0"),
        (f"[{_STATE}]", f"{_OLD}, {_DRAFTS}",
         "vLLM 0.19.0 fails with kind mamba, drafts and enable_prefix_caching"),
        ("[{kind: chunked_local_attention, attention_chunk_size: 9}]", f"{_OLD}, {_DRAFTS}",
         "has no prefix caching with kind chunked_local_attention and drafts of method eagle"),
        ("[{kind: mamba, has_drafter: true}]", "", "kind mamba: no drafter has such layers"),
        ("[{kind: full_attention, has_drafter: true}]", "",
         "has_drafter needs speculative_config with a method of eagle, eagle3, mtp"),
        ("[{kind: full_attention, has_drafter: true}]", f"{_OLD}, {_DRAFTS}",
         "vLLM 0.19.0 has no has_drafter"),
        (f"[{_STATE}]", "enable_chunked_prefill: false, max_num_batched_tokens: 9000",
         "kind mamba with enable_prefix_caching needs enable_chunked_prefill"),
        (f"[{_STATE}]", f"{_OLD}, block_size: 4096",
         "max_num_batched_tokens 2048 is less than block_size 4096"),
        ("model", "", "model needs the scenario's model"),
        (f"[{_WINDOW}]", "max_model_len: 100000, max_num_batched_tokens: 8192",
         "100000 tokens do not fit in the pool of 3184 tokens"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(groups, keys, reason):
    """One line that names the key."""
    if "override" not in keys:
        keys = f"num_gpu_blocks_override: 200, {keys}"
    more = "acceptance: {rate: 0.5}" if "speculative" in keys else ""
    with pytest.raises(InputError, match=reason):
        _settings(groups, keys, more)


@pytest.mark.parametrize(
    ("groups", "model", "reason"),
    [
        (f"[{_WINDOW}]", "openai/gpt-oss-20b", "is required with a list of kv_cache_groups"),
        ("model", "Qwen/Qwen3-Next-80B-A3B-Instruct", "has layers with states"),
    ],
)
def test_pool_that_cannot_be_derived_must_be_given(groups, model, reason):
    with pytest.raises(InputError, match=reason):
        _settings(groups, "block_size: 16", f"model: {model}\nhardware: b200-sxm",
                  "{kind: roofline}")  # fmt: skip
