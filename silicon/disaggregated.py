"""The scenario of a row whose prefill and decode ran on different servers.

    client --> Dynamo's front ends --> prefill servers --NIXL--> decode servers --> client

data/disaggregated.csv.gz has the flags of each kind of server. Where a flag is missing, SGLang
0.5.8 and vLLM 0.18 have the defaults below.
"""

import json
from collections.abc import Mapping

from silicon.facts import Row
from sim.latency.host import host_preset

ROLES = ("prefill", "decode")
Flags = Mapping[str, object]
_SHORT_NAMES = {
    "tp-size": "tensor-parallel-size",
    "dp-size": "data-parallel-size",
    "ep-size": "expert-parallel-size",
}
# The rate of a GPU's own network interface, in GB/s: that of NVLink where it reaches all servers of
# the row, else 400 Gbit/s InfiniBand (data sheets of DGX H100, H200, B200, and of NVL72 systems).
_GPU_LINK_GB_S: Mapping[str, float] = {
    "h100_sxm": 50.0,
    "h200_sxm": 50.0,
    "b200_sxm": 50.0,
    "gb200": 900.0,
    "gb300": 900.0,
}
# SGLang's host costs are those of 0.5.9 but for these, which were chosen on development rows.
# Dynamo's front ends tokenize: their time is the same for each prompt, and no request waits there.
_PRESET = "sglang-0.5.9"
_FRONT_END_S = 0.06
# How much longer a step of a prefill server takes than its operators, by whether it has one rank.
_PREFILL_GAP_S = {True: 0.1, False: 0.2}
# With ranks and without DeepEP, SGLang 0.5.8 gathers the tokens of a prefill step by two
# all-reduces (pull request 16578). They move twice the bytes of the package's gather and scatter,
# which take this long for a token: 2.3 us with 4 GPUs, 2.5 us with 8.
_ALL_REDUCE_TOKEN_S = 2.4e-6
# How much longer a prefill step takes for each token if all GPUs share the attention and the
# weights have 8 bits, on 4 GPUs and on 8. The cause is not known; servers that do both have it,
# too.
_TOKEN_OF_8_BITS_S = 15e-6
# Whose operators' times are taken, for both engines. The package's times of latent attention with
# vLLM on GB200 are twice those with SGLang; development rows of vLLM fit the latter.
_OPERATORS = "sglang"
# Attention backends whose pages have 64 tokens (`_handle_attention_backend_compatibility`).
_PAGES_OF_64 = "trtllm_mla"
# SGLang's default with more than 160 GB: `_handle_gpu_memory_settings`.
_CHUNK_TOKENS, _GRAPH_ROWS = 16_384, 512
_MAX_RUNNING = 2_048
_MOST_GPUS_OF_A_SERVER = 8
# Settings of the scheduler that are the flags of the same name. `load-balance-method` of a prefill
# server is not among them: until 0.5.10 (pull request 19168) a decode server took the rank of the
# prefill for `bootstrap_room` modulo the ranks, so `round_robin` dealt by that random number, too.
_SGLANG_KEYS: Mapping[str, tuple[str, ...]] = {
    "prefill": (
        "chunked-prefill-size",
        "max-prefill-tokens",
        "max-running-requests",
        "max-total-tokens",
        "mem-fraction-static",
        "scheduler-recv-interval",
        "disable-radix-cache",
    ),
    "decode": (
        "max-running-requests",
        "max-total-tokens",
        "mem-fraction-static",
        "scheduler-recv-interval",
        "load-balance-method",
        "disable-radix-cache",
        "cuda-graph-max-bs",
        "num-reserved-decode-tokens",
    ),
}
_DRAFT_KEYS = ("speculative-algorithm", "speculative-num-steps")
_VLLM_KEYS = (
    "max-num-seqs",
    "max-num-batched-tokens",
    "max-model-len",
    "gpu-memory-utilization",
    "block-size",
)


def server_pools(row: Row, version: str, preset: str) -> dict[str, object]:
    """The section `pools`.

    Args:
        row: the row.
        version: of the scheduler's rules.
        preset: the host's costs, with vLLM.
    """
    return {role: _pool(row, role, version, preset) for role in ROLES}


def transfer(row: Row) -> dict[str, object]:
    """The section `transfer`. Decode servers have as many GPUs as prefill servers, or more."""
    tp, dp = _sizes(row, _flags(row, "prefill"))
    return {"bandwidth_gb_s": tp * dp * _GPU_LINK_GB_S[row["system"]]}


def servers_in_words(row: Row, role: str) -> str:
    """How a model is spread over the GPUs of a server: `DP attention, DeepEP, 24 to 48 GPUs`."""
    flags = _flags(row, role)
    tp, dp = _sizes(row, flags)
    if dp == 1:
        return f"{row['backend']}, TP attention, {row['precision']}"
    if flags.get("moe-a2a-backend") != "deepep":
        return f"{row['backend']}, DP attention, {row['precision']}"
    wide = "24 to 48 GPUs" if tp * dp > _MOST_GPUS_OF_A_SERVER else "8 GPUs"
    return f"{row['backend']}, DP attention, DeepEP, {wide}, {row['precision']}"


def _pool(row: Row, role: str, version: str, preset: str) -> dict[str, object]:
    flags = _flags(row, role)
    scheduler = _sglang(flags, role) if row["backend"] == "sglang" else _vllm(flags)
    host = _sglang_host(row, role) if row["backend"] == "sglang" else _vllm_host(role, preset)
    return {
        "role": role,
        "replicas": flags["replicas"],
        "host": host,
        "latency": _latency(row, flags),
        "scheduler": {"family": row["backend"], "version": version, **scheduler},
    }


def _flags(row: Row, role: str) -> Flags:
    """The flags of a server, by their long names."""
    flags: dict[str, object] = json.loads(row[role])
    for short, long in _SHORT_NAMES.items():
        flags.setdefault(long, flags.pop(short, 1))
    return flags


def _sizes(row: Row, flags: Flags) -> tuple[int, int]:
    """GPUs of a rank, and ranks. SGLang's `--tp-size` counts the GPUs of all ranks."""
    tp, dp = (int(str(flags[f"{name}-parallel-size"])) for name in ("tensor", "data"))
    return (tp // dp, dp) if row["backend"] == "sglang" else (tp, dp)


def _sglang_host(row: Row, role: str) -> dict[str, float]:
    costs = host_preset(_PRESET).model_dump(exclude_defaults=True)
    costs |= {"front_end_s": _FRONT_END_S, "request_s": 0.0, "prompt_token_s": 0.0}
    if role == "prefill":
        flags = _flags(row, role)
        _, dp = _sizes(row, flags)
        costs["step_gap_s"] = _PREFILL_GAP_S[dp == 1]
        if dp == 1 and row["precision"] == "fp8":
            costs["prefill_token_gap_s"] = _TOKEN_OF_8_BITS_S
        elif dp > 1 and flags.get("moe-a2a-backend") != "deepep":
            costs["prefill_token_gap_s"] = _ALL_REDUCE_TOKEN_S
    return costs


def _vllm_host(role: str, preset: str) -> dict[str, float]:
    """A request goes through Dynamo's front end before its prefill server, and then no more."""
    costs = host_preset(preset).model_dump(exclude_defaults=True)
    return costs | {"front_end_s": _FRONT_END_S} if role == "prefill" else costs


def _latency(row: Row, flags: Flags) -> dict[str, object]:
    tp, dp = _sizes(row, flags)
    moe_ep = int(str(flags["expert-parallel-size"]))
    if flags.get("enable-expert-parallel"):
        moe_ep = tp * dp
    has_short_kv = str(flags.get("kv-cache-dtype", "")).startswith("fp8")
    return {
        "kind": "aiconfigurator",
        "system": row["system"],
        "backend": _OPERATORS,
        "tp": tp,
        "dp": dp,
        "moe_ep": moe_ep,
        "moe_a2a_backend": flags.get("moe-a2a-backend", "none"),
        "quantization": {"kv_cache": "fp8" if has_short_kv else "bfloat16"},
    }


def _sglang(flags: Flags, role: str) -> dict[str, object]:
    scheduler: dict[str, object] = {
        "page_size": 64 if flags.get("attention-backend") == _PAGES_OF_64 else 1,
        "max_running_requests": _MAX_RUNNING,
    }
    if role == "prefill":
        scheduler["chunked_prefill_size"] = _CHUNK_TOKENS
    else:
        scheduler["cuda_graph_max_bs"] = _GRAPH_ROWS
    scheduler |= _chosen(flags, (*_SGLANG_KEYS[role], *_DRAFT_KEYS))
    if "max_total_tokens" in scheduler:
        # SGLang takes the smaller of two sizes. In these rows the share of memory has more room.
        del scheduler["mem_fraction_static"]
    return scheduler


def _vllm(flags: Flags) -> dict[str, object]:
    return {
        **_chosen(flags, _VLLM_KEYS),
        "enable_prefix_caching": "no-enable-prefix-caching" not in flags,
    }


def _chosen(flags: Flags, names: tuple[str, ...]) -> dict[str, object]:
    return {name.replace("-", "_"): flags[name] for name in names if name in flags}
