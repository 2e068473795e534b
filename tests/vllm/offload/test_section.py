"""The keys of KV in CPU memory: what they make of a model, and what is refused in one line."""

import pytest

from sim.core.errors import InputError
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text

_SCENARIO = """
name: offloading
{more}
latency: {latency}
workload: {{kind: synthetic, num_requests: 1, arrivals: {{kind: poisson, rate_rps: 1}},
           prompt_tokens: {{kind: constant, value: 9}},
           output_tokens: {{kind: constant, value: 2}}}}
scheduler: {{family: vllm, num_gpu_blocks_override: 200, {keys}}}
"""
_LINEAR = (
    "{kind: linear, step_s: 0.01, per_prefill_token_s: 0, per_decode_request_s: 0,"
    " per_context_token_s: 0"
)
_TOKENS = "kv_offloading: {capacity_tokens: 1000, load_tokens_per_s: 1e6}"
_SIMPLE = f"{_TOKENS[:-1]}, kv_connector: SimpleCPUOffloadConnector"
_TWO_BLOCKS = "kv_offloading: {capacity_tokens: 1000, load_tokens_per_s: 1e6, blocks_per_chunk: 2}"
_WINDOWS = "kv_cache_groups: [{kind: full_attention}, {kind: sliding_window, sliding_window: 32}]"
_CHUNKS = (
    "kv_cache_groups: [{kind: full_attention}, {kind: chunked_local_attention,"
    " attention_chunk_size: 64, has_drafter: true}]"
)
_DRAFTS = "speculative_config: {method: mtp, num_speculative_tokens: 1}"
_MODEL = "model: meta-llama/Llama-3.1-8B"


def _settings(keys, more="", latency=_LINEAR + "}"):
    text = _SCENARIO.format(keys=keys, more=more, latency=latency)
    return build(load_scenario_text(text)).scheduler.offload


def test_bytes_are_chunks_of_the_model():
    """Llama-3.1-8B: 131,072 bytes a token, on one GPU or on two together."""
    for tp in (1, 2):
        latency = f"{{kind: roofline, tp: {tp}}}"
        keys = "kv_offloading_size: 8, kv_offloading: {blocks_per_chunk: 2}"
        found = _settings(keys, f"{_MODEL}\nhardware: h100-sxm", latency)
        assert found.num_chunks == 8 * 2**30 // (131_072 * 32)
        # 50 GB/s, each GPU over its own link.
        assert found.copy_ns_per_token == 131_072 / tp / 50


def test_each_gpu_has_its_own_copy_of_a_latent_in_older_versions():
    """DeepSeek-V2-Lite: 31,104 bytes a token on each of two GPUs; older chunks fill no pages."""
    keys, where = "kv_offloading_size: 8", "model: deepseek-ai/DeepSeek-V2-Lite"
    latency = "{kind: roofline, tp: 2}"
    num_bytes = 16 * 31_104
    for version, size in (("0.19.0", 2 * num_bytes), ("0.33.0", -(-num_bytes // 4096) * 4096)):
        found = _settings(f"version: {version}, {keys}", f"{where}\nhardware: h100-sxm", latency)
        assert found.num_chunks == 8 * 2**30 // size
        assert found.offload_prompt_only == (version == "0.33.0")


def test_a_chunk_holds_the_layers_of_a_group():
    """GPT-OSS-20B: 12 of its 24 layers, 2,048 bytes a token each."""
    keys = "kv_offloading_size: 8, kv_cache_groups: model, max_num_batched_tokens: 128"
    where = "model: openai/gpt-oss-20b\nhardware: h100-sxm"
    found = _settings(keys, where, "{kind: roofline}")
    assert found.num_chunks == 8 * 2**30 // (12 * 2048 * 16)
    assert found.copy_ns_per_token == 12 * 2048 / 50


def test_budget_of_a_step_is_of_all_groups():
    """Llama-3.1-8B: 131,072 bytes a token; GPT-OSS-20B: two groups of 24,576 bytes each."""
    budget = "kv_offloading: {sync_load_budget_bytes: 1000000}, kv_offloading_size: 8"
    roofline = "{kind: roofline}"
    found = _settings(budget, f"{_MODEL}\nhardware: h100-sxm", roofline)
    assert found.sync_load_tokens == 1_000_000 // 131_072
    where = "model: openai/gpt-oss-20b\nhardware: h100-sxm"
    keys = f"{budget}, kv_cache_groups: model, max_num_batched_tokens: 128"
    assert _settings(keys, where, roofline).sync_load_tokens == 1_000_000 // (2 * 24_576)


def test_each_gpu_has_its_part_of_the_blocks_of_the_simple_connector():
    """DeepSeek-V2-Lite: 31,104 bytes a token on each of two GPUs; the first block is not used."""
    keys = "kv_offloading_size: 8, kv_offloading: {kv_connector: SimpleCPUOffloadConnector}"
    where = "model: deepseek-ai/DeepSeek-V2-Lite\nhardware: h100-sxm"
    found = _settings(keys, where, "{kind: roofline, tp: 2}")
    assert found.num_chunks == 4 * 2**30 // (16 * 31_104) - 1
    assert (found.is_simple, found.lazy_offload) == (True, False)


def test_tokens_need_no_model():
    found = _settings(_TOKENS)
    assert (found.num_chunks, found.copy_ns_per_token) == (62, 1000.0)
    assert (found.eviction_policy, found.offload_prompt_only) == ("lru", True)
    assert _settings("max_num_seqs: 8") is None


@pytest.mark.parametrize(
    ("keys", "more", "reason"),
    [
        ("kv_offloading: {eviction_policy: arc}", "", "are both missing: give one of them"),
        (f"kv_offloading_size: 8, {_TOKENS}", _MODEL, "set the same size: give one of them"),
        ("kv_offloading_size: 8", "", "kv_offloading_size: needs a model whose shape is known"),
        ("kv_offloading_size: 1e-6", _MODEL, "kv_offloading_size: has no room for a chunk of 16"),
        (
            "kv_offloading: {capacity_tokens: 100, load_tokens_per_s: 1, load_bandwidth_gb_s: 1}",
            "",
            "load_bandwidth_gb_s and load_tokens_per_s set the same speed",
        ),
        (
            "kv_offloading: {sync_load_budget_bytes: 9, sync_load_budget_tokens: 9}",
            "",
            "sync_load_budget_bytes and sync_load_budget_tokens set the same: give one of them",
        ),
        (f"version: 0.14.0, {_TOKENS}", "", "kv_offloading of vLLM 0.14.0 is not simulated"),
        (
            f"version: 0.19.0, {_TOKENS}, {_WINDOWS}",
            "",
            "vLLM 0.19.0 turns groups of layers off with a KV connector",
        ),
        *(
            (
                f"version: 0.19.0, {_TOKENS[:-1]}, {key}: {value}}}",
                "",
                f"vLLM 0.19.0 has no kv_offloading.{key}",
            )
            for key, value in (
                ("offload_prompt_only", "true"),
                ("sync_load_budget_bytes", "9"),
                ("sync_load_budget_tokens", "9"),
                ("secondary_tiers", "[{type: fs}]"),
            )
        ),
        (
            f"{_TOKENS}, {_WINDOWS}, {_DRAFTS}",
            "",
            "kv_offloading with drafts of method mtp needs a list of groups, and has_drafter in",
        ),
        (
            f"{_TOKENS}, {_DRAFTS}, {_CHUNKS}",
            "",
            "vLLM refuses kind chunked_local_attention with drafts of method mtp and a KV",
        ),
        (
            f"{_TOKENS}, kv_cache_groups: [{{kind: mamba}}], enable_prefix_caching: false",
            "",
            "kv_offloading with kind mamba needs enable_prefix_caching",
        ),
        (
            f"{_TWO_BLOCKS}, {_WINDOWS}, prefix_cache_retention_interval: 48",
            "",
            "prefix_cache_retention_interval 48 is no multiple of a chunk's 32 tokens",
        ),
        (
            f"{_TOKENS[:-1]}, sync_load_budget_tokens: 9}}, kv_cache_groups: [{{kind: mamba}}]",
            "",
            "vLLM fails with sync_load_budget_tokens and kind mamba",
        ),
        *(
            (f"{_SIMPLE}, {key}: {value}}}", "", f"SimpleCPUOffloadConnector has no {key}")
            for key, value in (
                ("blocks_per_chunk", "2"),
                ("eviction_policy", "lru"),
                ("secondary_tiers", "[{type: fs}]"),
            )
        ),
        (f"{_TOKENS[:-1]}, lazy_offload: true}}", "", "OffloadingConnector has no lazy_offload"),
        (f"version: 0.19.0, {_SIMPLE}}}", "", "SimpleCPUOffloadConnector of vLLM 0.19.0 is not"),
        (
            f"{_SIMPLE.replace('1000', '100000000000')}}}",
            "",
            "kv_offloading: more than 67108864 blocks are not simulated",
        ),
        (
            f"{_SIMPLE}}}, kv_cache_groups: [{{kind: mamba}}]",
            "",
            "SimpleCPUOffloadConnector needs a group of kind full_attention",
        ),
        (
            f"kv_offloading_size: 8, {_WINDOWS}",
            "model: Qwen/Qwen3-Next-80B-A3B-Instruct",
            "needs capacity_tokens and load_tokens_per_s with the groups of",
        ),
    ],
)
def test_keys_that_do_not_go_together_are_refused(keys, more, reason):
    with pytest.raises(InputError, match=reason):
        _settings(keys, more)


def test_ranks_do_not_store_lazily():
    keys = f"{_SIMPLE}, lazy_offload: true}}"
    with pytest.raises(InputError, match=r"lazy_offload: is not simulated with latency\.dp"):
        _settings(keys, latency=_LINEAR + ", dp: 2}")


_TIER = "kv_offloading: {capacity_tokens: 1000, load_tokens_per_s: 1e6, %ssecondary_tiers: [%s]}"
_STORE = "store: {read_tokens_per_s: 1e6, write_tokens_per_s: 5e5, capacity_tokens: 1000}"


def test_a_page_of_the_store_is_a_chunk():
    found = _settings(_TIER % ("blocks_per_chunk: 2, ", "{type: fs, n_read_threads: 3}"), _STORE)
    (tier,) = found.tiers
    assert (tier.kind, tier.n_read_threads, tier.pressure) == ("fs", 3, None)
    store = tier.store
    assert (store.capacity_pages, store.read_ns_per_page) == (31, 32_000.0)


def test_bytes_in_the_store_are_those_of_all_gpus():
    """Llama-3.1-8B: 131,072 bytes a token on two GPUs together; latent attention's only once."""
    keys = "kv_offloading_size: 8, kv_offloading: {secondary_tiers: [{type: obj}]}"
    where = "hardware: h100-sxm\nstore: {preset: nvme, capacity_gb: 1}"
    latency = "{kind: roofline, tp: 2}"
    for model, num_bytes in (
        ("meta-llama/Llama-3.1-8B", 131_072),
        ("deepseek-ai/DeepSeek-V2-Lite", 31_104),
    ):
        found = _settings(keys, f"model: {model}\n{where}", latency).tiers[0]
        assert found.store.write_ns_per_page == 16 * num_bytes / 5.6
        assert found.store.capacity_pages == int(1e9 / num_bytes) // 16


def test_marks_of_back_pressure_depend_on_where_the_storage_is():
    """A chunk fills whole pages of 4 KiB."""
    for tier, marks_s in (
        ("{type: fs, backpressure: {}}", (0.01, 0.002)),
        ("{type: fs, locality: REMOTE, backpressure: {}}", (0.05, 0.01)),
        ("{type: obj, backpressure: {high_water_s: 0.5}}", (0.5, 0.01)),
    ):
        found = _settings(_TIER % ("", tier), f"{_MODEL}\n{_STORE}").tiers[0].pressure
        assert (found.high_water_s, found.low_water_s) == marks_s
        assert (found.chunk_bytes, found.drops_all) == (16 * 131_072, False)


def test_each_of_several_tiers_has_a_store():
    """In bytes with a model; one may use the scenario's."""
    own = "{type: obj, store: {preset: nvme, shared: true}}"
    first, second = _settings(_TIER % ("", f"{{type: fs}}, {own}"), f"{_MODEL}\n{_STORE}").tiers
    assert (first.store.read_ns_per_page, second.store.is_shared) == (16_000.0, True)
    assert second.store.write_ns_per_page == 16 * 131_072 / 5.6
    (alone,) = _settings(_TIER % ("", own), _MODEL).tiers
    assert alone.store == second.store


@pytest.mark.parametrize(
    ("keys", "more", "reason"),
    [
        (("", "{type: fs, store: nvme}"), _STORE, "store and scheduler.kv_offloading.sec"),
        (
            ("", "{type: fs}, {type: fs, store: nvme}"),
            _STORE,
            "secondary_tiers.1.store.read_bandwidth_gb_s: needs a model whose shape is known",
        ),
        (("", "{type: fs}"), "", "store and scheduler.kv_offloading.secondary_tiers need each"),
        (("", "{type: fs}, {type: fs}"), _STORE, "all but one need a store of their own"),
        (("store_threshold: 2, ", "{type: fs}"), _STORE, "vLLM refuses store_threshold 2 with"),
        (("", "{type: p2p}"), _STORE, "secondary_tiers.*type"),
        (
            ("", "{type: fs, backpressure: {}}"),
            _STORE,
            "kv_offloading: needs a model whose shape is known",
        ),
        (
            ("", "{type: obj, backpressure: {low_water_s: 1}}"),
            _STORE,
            "low_water_s 1 must be at most high_water_s 0.05",
        ),
        (
            ("blocks_per_chunk: 9, ", "{type: fs}"),
            _STORE.replace("1000", "100"),
            "store.capacity_tokens: makes room for 100 tokens, less than a page's 144",
        ),
    ],
)
def test_tiers_that_do_not_go_are_refused(keys, more, reason):
    with pytest.raises(InputError, match=reason):
        _settings(_TIER % keys, more)


def test_each_stage_copies_its_layers():
    """Over its own link, unless the speed of all of them together is given in tokens."""
    where = f"{_MODEL}\nhardware: h100-sxm"
    latency = "{kind: roofline, pp: 2}"
    found = _settings("kv_offloading_size: 8", where, latency)
    assert found.copy_ns_per_token == 131_072 / 2 / 50
    assert _settings(_TOKENS, where, latency).copy_ns_per_token == 1000.0


def test_each_rank_has_memory_of_its_own():
    assert _settings(_TOKENS, latency=_LINEAR + ", dp: 2}").num_chunks == 62


_POOLS = (
    f"{_MODEL}\npools: {{prefill: {{role: prefill}}, decode: {{role: decode}}}}\n"
    "transfer: {bandwidth_gb_s: 50}"
)


def test_servers_of_a_role_keep_kv_too():
    """Of groups of layers as well, and steps may wait for loads."""
    found = _settings("kv_offloading_size: 8", _POOLS)
    assert found.num_chunks == 8 * 2**30 // (131_072 * 16)
    budget = f"{_TOKENS[:-1]}, sync_load_budget_tokens: 9}}"
    assert _settings(f"{budget}, {_WINDOWS}", _POOLS).sync_load_tokens == 9


def test_lost_kv_of_an_older_version_is_not_computed_again():
    old = f"version: 0.19.0, {_TOKENS}"
    assert _settings(old, _POOLS).num_chunks == 62
    reason = "kv_load_failure_policy: recompute of vLLM 0.19.0 is not simulated with kv_offloading"
    with pytest.raises(InputError, match=reason):
        _settings(f"{old}, kv_load_failure_policy: recompute", _POOLS)
