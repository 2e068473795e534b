"""What engines and people call the keys of a scenario: the other engine's names, and old ones.

Old names are those of flags that SGLang and vLLM once had, or took as abbreviations; some are
TensorRT-LLM's.
"""

from collections.abc import Collection
from typing import NamedTuple

from sim.core.errors import KeyPath


class _Setting(NamedTuple):
    """A setting that both engines have: its keys, and other names for it.

    Attributes:
        sglang, vllm: the key in the `scheduler` section of each family.
        others: names that neither family has as a key.
        is_opposite: what one key switches on, the other one switches off.
    """

    sglang: str
    vllm: str
    others: frozenset[str] = frozenset()
    is_opposite: bool = False


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SETTINGS = (
    _Setting("max_running_requests", "max_num_seqs", _names("max_batch_size max_num_reqs max_bs")),
    _Setting("chunked_prefill_size", "max_num_batched_tokens", _names("max_num_tokens")),
    _Setting("max_prefill_tokens", "max_num_batched_tokens", _names("max_prefill_num_token")),
    _Setting(
        "max_total_tokens",
        "num_gpu_blocks_override",
        _names("max_total_num_tokens num_gpu_blocks kv_cache_size"),
    ),
    _Setting(
        "mem_fraction_static",
        "gpu_memory_utilization",
        _names("mem_frac mem_fraction gpu_memory_fraction free_gpu_memory_fraction"),
    ),
    _Setting("page_size", "block_size", _names("tokens_per_block")),
    _Setting("schedule_policy", "scheduling_policy", _names("policy schedule_heuristic")),
    _Setting("context_length", "max_model_len", _names("context_len max_context_len max_seq_len")),
    _Setting(
        "disable_radix_cache",
        "enable_prefix_caching",
        _names("enable_block_reuse"),
        is_opposite=True,
    ),
    _Setting("disable_overlap_schedule", "async_scheduling", is_opposite=True),
    _Setting("cuda_graph_max_bs", "max_cudagraph_capture_size", _names("cuda_graph_sizes")),
    _Setting("max_queued_requests", "max_num_queued_reqs"),
    _Setting(
        "speculative_algorithm",
        "speculative_config",
        _names("speculative_model num_speculative_tokens"),
    ),
)
# Names that people give to keys of other sections, by the key path to write instead.
_ELSEWHERE = {
    "latency.tp": _names("tp tp_size tensor_parallel tensor_parallel_size"),
    "latency.dp": _names("dp dp_size data_parallel_size enable_dp_attention"),
    "latency.pp": _names("pp pp_size pipeline_parallel_size"),
    "latency.moe_ep": _names(
        "ep ep_size expert_parallel_size enable_expert_parallel enable_ep_moe"
    ),
    "latency.quantization": _names("quantization dtype weights"),
    "hardware": _names("gpu gpu_type device"),
    "model": _names("model_path model_name"),
    "workload.num_requests": _names("num_requests num_prompts"),
    "workload.arrivals.rate_rps": _names("rate rate_rps request_rate qps rps"),
    "workload.clients": _names("concurrency max_concurrency num_clients"),
}
# Settings that vLLM had, and why there is no key for them.
_REMOVED = {
    "swap_space": "vLLM has no swap space since 0.18: it computes preempted requests again",
    "preemption_mode": "vLLM has one way since its engine V1: it computes preempted requests again",
    "num_scheduler_steps": "vLLM has no steps of several tokens since its engine V1",
    "scheduler_delay_factor": "vLLM has no such delay since its engine V1",
    "use_v2_block_manager": "vLLM has one block manager since its engine V1",
}


def hint(path: KeyPath, siblings: Collection[str]) -> str | None:
    """What to write for a key that the section with these keys does not have; None: not known."""
    name = str(path[-1])
    found = _in_scheduler(name, siblings)
    if found is None and name in _REMOVED and len(path) > 1:
        return _REMOVED[name]
    return found or _elsewhere(path, siblings)


def _in_scheduler(name: str, siblings: Collection[str]) -> str | None:
    for setting in _SETTINGS:
        own, other = setting.sglang, setting.vllm
        families = "sglang", "vllm"
        if own not in siblings:
            # The section is one of family vllm.
            own, other, families = other, own, ("vllm", "sglang")
        if own in siblings and name == other:
            means = "says the opposite" if setting.is_opposite else "is its counterpart"
            return f"family {families[1]} has it; in family {families[0]} {own} {means}"
        if own in siblings and name in setting.others:
            return f"did you mean {own}?"
    return None


def _elsewhere(path: KeyPath, siblings: Collection[str]) -> str | None:
    name = str(path[-1])
    key = next((key for key, names in _ELSEWHERE.items() if name in names), None)
    if key is None:
        return None
    section, inner, *_ = (*key.split("."), "")
    if len(path) == 1 or path[0] != section or inner in siblings:
        return f"did you mean {key}?"
    # A section of this kind may have the key under one of the other names.
    same = sorted(_ELSEWHERE[key].intersection(siblings))
    if same:
        return f"did you mean {same[0]}?"
    return None if name == inner else f"other kinds have {key}"
