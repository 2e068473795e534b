"""The scenario that describes how a row was measured."""

import json

from silicon.disaggregated import server_pools, transfer
from silicon.facts import Row
from sim.core.declared import entry_for
from sim.core.errors import InputError
from sim.sglang import version_rules as sglang_rules
from sim.vllm import version_rules as vllm_rules

# Presets of the host's costs, by the first version that each is for. Nightly images have the preset
# of the version whose rules they have.
_SGLANG_HOSTS = {name: name for name in ("0.5.1", "0.5.3", "0.5.5", "0.5.9", "0.5.10")}
# Before 0.14 async scheduling was an experiment.
_VLLM_HOSTS = {"0.10.0": "vllm-0.10", "0.14.0": "vllm-async"}
# Servers whose flags were not published are taken to have the engine's defaults.
_CHUNK_TOKENS = {"h100_sxm": 8_192, "h200_sxm": 8_192}
_CHUNK_TOKENS_BLACKWELL = 16_384
# vLLM's default where no `vllm serve` is called. Development rows fit it: with 8,192, the default
# of `vllm serve`, their TTFT would be a median of 74 % off, with 4,096 35 %, with this 13 %.
_STEP_TOKENS = 2_048
# The default of vLLM 0.19 is twice `max_num_seqs`, but not more than this.
_MOST_GRAPH_TOKENS = 512
# As nvidia-smi prints them.
_MEMORY_MIB = {
    "h100_sxm": 81_559,
    "h200_sxm": 143_771,
    "b200_sxm": 183_359,
    "b300_sxm": 275_040,
}
# Mean acceptance lengths by model and draft tokens. Neither the table nor the client's results have
# them; they were fitted to TPOT of the development rows (`python -m silicon.speculation --fit`).
ACCEPTED: dict[str, float] = {
    "deepseek-ai/DeepSeek-R1 2": 1.75,
    "DeepSeek-R1 2, disaggregated": 1.94,
    "Qwen/Qwen3.5-397B-A17B 3": 2.26,
}
# The oldest version whose prefill and decode servers are simulated; the measured ones had 0.18.
_VLLM_RULES_DISAGGREGATED = "0.19.0"
_WARMUPS_PER_CLIENT = 2
_REQUESTS_PER_CLIENT = 10
# Tokens that the chat template adds to a prompt of the models that were asked through it.
_CHAT_TEMPLATE_TOKENS = 10


def scenario_of(row: Row) -> dict[str, object]:
    """The scenario, as YAML has it.

    Raises:
        InputError: the row cannot be judged, or misses a fact; the reason is the message.
    """
    if row["reason"] and not row.drafts and not row.is_disaggregated:
        raise InputError(row["reason"])
    if not row["model"]:
        raise InputError("the checkpoint is not known")
    common = {
        **acceptance_of(row),
        "name": row.id.replace("/", "-")[:100],
        "model": row["model"],
        "workload": _workload(row),
    }
    if row.is_disaggregated:
        pools = server_pools(row, _rules_disaggregated(row), host_preset_of(row))
        return {**common, "pools": pools, "transfer": transfer(row)}
    return {
        **common,
        "host": host_preset_of(row),
        "latency": _latency(row),
        "scheduler": _sglang(row) if row["backend"] == "sglang" else _vllm(row),
    }


def _rules_disaggregated(row: Row) -> str:
    """The version of the rules; those of older versions with drafts are not simulated."""
    if row["backend"] == "vllm":
        return _VLLM_RULES_DISAGGREGATED
    return sglang_rules.NEWEST if row.drafts else _sglang_rules(row["version"])


def acceptance_of(row: Row) -> dict[str, object]:
    """The section `acceptance`; empty if the server did not speculate.

    Raises:
        InputError: nobody knows what was accepted of this model's drafts.
    """
    if not row.drafts:
        return {}
    key = accepted_key(row)
    if key not in ACCEPTED:
        raise InputError(f"nobody knows the acceptance length of {key} drafts")
    return {"acceptance": {"mean_length": ACCEPTED[key]}}


def accepted_key(row: Row) -> str:
    """The key of `ACCEPTED`: the model and the number of its drafts.

    All disaggregated servers that speculated served DeepSeek-R1, in 4 bits or 8.
    """
    if row.is_disaggregated:
        return f"DeepSeek-R1 {row.drafts}, disaggregated"
    return f"{row['model']} {row.drafts}"


def scenario_text(row: Row) -> str:
    """The scenario as JSON, which is YAML."""
    return json.dumps(scenario_of(row), indent=1)


def host_preset_of(row: Row) -> str:
    """The name of the host's costs: by engine generation alone."""
    if row["backend"] == "sglang":
        version = entry_for(row["version"], _SGLANG_HOSTS)
        return f"sglang-{version or _sglang_rules(row['version'])}"
    if row["async_scheduling"] != "True":
        return "vllm-sync"
    return entry_for(row["version"], _VLLM_HOSTS) or "vllm-async"


def _latency(row: Row) -> dict[str, object]:
    formats = {kind: row[kind] for kind in ("gemm", "moe", "kv_cache") if row[kind]}
    return {
        "kind": "aiconfigurator",
        "system": row["system"],
        "backend": row["backend"],
        **{name: row.number(name) for name in _sizes(row)},
        "quantization": formats,
    }


def _sizes(row: Row) -> tuple[str, ...]:
    """Dense models have no experts to spread."""
    return ("tp", "dp") if row["arch_class"] == "dense" else ("tp", "dp", "moe_tp", "moe_ep")


def _workload(row: Row) -> dict[str, object]:
    concurrency = row.number("concurrency")
    if concurrency is None:
        raise InputError("the concurrency is not known")
    bench: dict[str, object] = {
        "kind": "bench",
        "client": "aiperf"
        if row["client"] == "fixed" and not row.is_disaggregated
        else "inferencex",
        "num_prompts": _REQUESTS_PER_CLIENT * concurrency,
        "input_len": row.number("isl"),
        "output_len": row.number("osl"),
        "max_concurrency": concurrency,
        "warmup_requests": _WARMUPS_PER_CLIENT * concurrency,
    }
    if row.is_disaggregated:
        # The warm-up was a run of its own before this one, and no server kept prefixes.
        bench |= {"warmup_requests": 0, "chat_template_tokens": _CHAT_TEMPLATE_TOKENS}
    elif row["client"] == "inferencex-1-warmup":
        bench["warmup_requests"] = 1
    elif row["client"] == "inferencex-chat":
        bench["chat_template_tokens"] = _CHAT_TEMPLATE_TOKENS
    return bench


def _sglang(row: Row) -> dict[str, object]:
    drafts = _sglang_drafts(row) if row.drafts else {}
    return {**_sglang_without_drafts(row), **drafts}


def _sglang_drafts(row: Row) -> dict[str, object]:
    """Chains of drafts, by the newest rules: those of older versions are not simulated."""
    return {
        "version": sglang_rules.NEWEST,
        "speculative_algorithm": "NEXTN",
        "speculative_num_steps": row.drafts,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 1 + row.drafts,
        "disable_overlap_schedule": row["drafts_overlap"] != "yes",
    }


def _sglang_without_drafts(row: Row) -> dict[str, object]:
    concurrency = row.number("concurrency") or 1
    chunk = row.number("chunked_prefill_size")
    chunk = chunk or _CHUNK_TOKENS.get(row["system"], _CHUNK_TOKENS_BLACKWELL)
    graph_rows = row.number("cuda_graph_max_bs") or _sglang_graph_rows(row)
    return {
        "family": "sglang",
        "version": _sglang_rules(row["version"]),
        "page_size": row.number("page_size") or 1,
        "mem_fraction_static": float(row["memory_share"] or 0)
        or _sglang_memory_share(row, chunk, graph_rows),
        "chunked_prefill_size": chunk,
        "max_prefill_tokens": row.number("max_prefill_tokens") or 16_384,
        "max_running_requests": row.number("max_running_requests") or max(concurrency, 256),
        "scheduler_recv_interval": row.number("scheduler_recv_interval") or 1,
        "cuda_graph_max_bs": graph_rows,
        "tokenizer_worker_num": row.number("tokenizer_worker_num") or 1,
        "disable_radix_cache": row["prefix_cache"] == "off",
        # Not published for these servers. Development rows fit no other choice.
        "enable_mixed_chunk": row["version"] == "0.5.6.post2" and row["client"] == "fixed",
    }


def _sglang_graph_rows(row: Row) -> int:
    """SGLang 0.5.9's default by memory and `tp` (`_handle_gpu_memory_settings`)."""
    return 512 if row["system"] not in _CHUNK_TOKENS or (row.number("tp") or 1) >= 4 else 256


def _sglang_memory_share(row: Row, chunk: int, graph_rows: int) -> float:
    """The default of `mem_fraction_static`, from the same place."""
    total_mib = _MEMORY_MIB[row["system"]]
    reserved_mib = 512 + 1.5 * chunk + 2 * graph_rows + 128 * (row.number("tp") or 1)
    return round(1 - max(reserved_mib, 10 * 1024) / total_mib, 3)


def _sglang_rules(version: str) -> str:
    """The version of the scheduler's rules that a measured server had.

    Nightly images of April 2026 are later than 0.5.10, those before are later than 0.5.9.
    """
    if version.startswith("nightly-dev-202604"):
        return "0.5.10"
    return sglang_rules.version_with_rules_of(version) or "0.5.9"


def _vllm(row: Row) -> dict[str, object]:
    concurrency = row.number("concurrency") or 1
    budget = row.number("max_num_batched_tokens") or _STEP_TOKENS
    return {
        "family": "vllm",
        "version": vllm_rules.version_with_rules_of(row["version"]) or vllm_rules.NEWEST,
        "block_size": row.number("page_size") or 16,
        "gpu_memory_utilization": float(row["memory_share"] or 0.9),
        "max_num_batched_tokens": budget,
        "max_num_seqs": (num_rows := row.number("max_num_seqs") or max(concurrency, 256)),
        "max_cudagraph_capture_size": row.number("cuda_graph_max_bs")
        or min(2 * num_rows, _MOST_GRAPH_TOKENS),
        "max_model_len": int(1.25 * ((row.number("isl") or 0) + (row.number("osl") or 0))),
        "enable_prefix_caching": row["prefix_cache"] == "on",
        "async_scheduling": row["async_scheduling"] == "True",
    }
