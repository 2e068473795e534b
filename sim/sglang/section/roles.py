"""What the keys of the section mean for a server that only prefills, or only decodes.

Source: SGLang 0.5.23, `handle_pd_disaggregation` in arg_groups/pd_disaggregation_hook.py; for the
host memory in which a decode server keeps the KV of retracted requests,
`resolve_decode_retraction_backup` and `decode_retraction_max_tokens` in mem_cache/
kv_cache_builder.py, and `HostKVCache` in mem_cache/pool_host/base.py.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sim.core.errors import InputError
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.ranks import BY_ROOM, ROUND_ROBIN
from sim.sglang.section.keys import SglangKeys
from sim.sglang.section.speculation import check_drafts_of_decode_server, check_drafts_of_stages
from sim.validation import KeysError

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape

BACKUP_KEY = "disaggregation_decode_retraction_backup"
RATIO_KEY = "hicache_ratio"
_HOST_POOL = "host_pool"
_CPU_TENSOR = "cpu_tensor"
# Of the pool on the device, unless the longest request needs more.
_LEAST_RATIO = 0.2
# `ReqToTokenPool.max_context_len` is the context and 4; the last token of a request has no KV yet.
_MORE_THAN_CONTEXT = 4 - 1
# With at most `_FEW_SLOTS` slots for each rank, a decode server has `_EXTRA_PER_SLOT` extra ones
# for each slot.
_FEW_SLOTS = 32
_EXTRA_PER_SLOT = 2
# SGLang's settings of such servers that are not simulated, with their defaults.
_NOT_SIMULATED: dict[str, object] = {
    "optimistic_prefill_attempts": 0,
    "disaggregation_decode_allocation_policy": "early",
    "disaggregation_decode_host_receive_threshold": 1,
    "disaggregation_decode_enable_offload_kvcache": False,
    "enable_pd_role_switch": False,
}


def without_unsimulated(given: Any) -> Any:
    """The keys of a section without settings of disaggregated servers that are not simulated.

    Raises KeysError: one of them has not SGLang's default.
    """
    if not isinstance(given, dict):
        return given
    for key, default in _NOT_SIMULATED.items():
        if key in given and given[key] != default:
            page = "docs/explanation/disaggregation.md"
            raise KeysError(f"{key}: only {str(default).lower()} is simulated ({page})", key)
    return {key: value for key, value in given.items() if key not in _NOT_SIMULATED}


def load_balance_method(method: str, role: str = BOTH) -> str:
    """The method that `auto` stands for, or the given one.

    Source: SGLang 0.5.23, `handle_load_balance_method` in arg_groups/serving_hook.py.
    """
    if method in ("auto", BY_ROOM):
        return BY_ROOM if role == PREFILL else ROUND_ROBIN
    return method


def with_role(
    section: SglangKeys, config: SchedulerConfig, role: str, model: "ModelShape | None"
) -> SchedulerConfig:
    """The settings of a server of this role; `model`: what it serves, if that is known.

    Raises InputError: a setting is not simulated on such a server.
    """
    if section.load_balance_method == BY_ROOM and role != PREFILL:
        reason = f"{BY_ROOM} is for servers of role {PREFILL}"
        raise InputError(reason, key=("scheduler", "load_balance_method"))
    if section.hicache_ratio is not None and role != DECODE:
        reason = f"is for servers of role {DECODE}: give host_cache.ratio"
        raise InputError(reason, key=("scheduler", RATIO_KEY))
    if config.micro_batches > 1:
        check_drafts_of_stages(section, role)
    if role == BOTH:
        return config
    _check_one_role(section)
    method = load_balance_method(section.load_balance_method, role)
    config = replace(config, role=role, load_balance_method=method)
    if config.user.schedule_policy is not None:
        from sim.sglang.user_rules import check_keeper  # noqa: PLC0415 - most runs have none

        check_keeper(config)
    if role != DECODE:
        return config
    check_drafts_of_decode_server(section)
    if config.host_cache is not None:
        _check_host_memory_of_decode_server(section, config)
    ratio = retraction_host_ratio(section, config, model)
    states = config.states
    if states is not None:
        # Every slot has its states (`HybridMambaDecodeReqToTokenPool`, disaggregation/decode.py).
        num_slots = config.max_running_requests + extra_slots(section)
        most = max(states.num_states, num_slots * (1 + states.num_tracked))
        states = replace(states, num_states=most)
    window = config.window
    if window is not None:
        num_tokens = host_tokens(ratio, window.pool_tokens, config.page_size)
        window = replace(window, retraction_host_tokens=num_tokens)
    return replace(
        config,
        states=states,
        window=window,
        disaggregation_decode_extra_slots=extra_slots(section),
        retraction_host_tokens=host_tokens(ratio, config.pool_tokens, config.page_size),
    )


def _check_one_role(section: SglangKeys) -> None:
    """Refuse what only servers of role `both` have.

    Raises:
        InputError: such a setting.
    """
    if section.batching != "continuous":
        reason = f"a static batch is prefilled and decoded by one server, of role {BOTH}"
        raise InputError(reason, key=("scheduler", "batching"))


def _check_host_memory_of_decode_server(section: SglangKeys, config: SchedulerConfig) -> None:
    """Refuse host memory (HiCache) without what it needs, a radix cache with full attention.

    Source: the functions of SGLang 0.5.23 that the reasons name.

    Raises InputError: SGLang does not start with these settings, or does not work.
    """
    reason = ""
    if not section.disaggregation_decode_enable_radix_cache:
        reason = (
            "without disaggregation_decode_enable_radix_cache: there is no cache to be kept"
            " (arg_groups/kv_cache_hook.py, handle_cache_compatibility)"
        )
    elif config.window is not None:
        reason = (
            "with sliding windows: its radix cache is on the device alone then"
            " (mem_cache/kv_cache_builder.py, validate_decode_radix_cache)"
        )
    elif config.micro_batches > 1:
        # SGLang starts, but never sees that a copy to host memory has ended.
        reason = (
            "is not simulated on servers of role decode with latency.pp above 1: SGLang's loop does"
            " not look for ends of copies (event_loop_pp_disagg_decode,"
            " managers/scheduler_pp_mixin.py)"
        )
        raise InputError(reason, key=("scheduler", "host_cache"))
    if reason:
        refusal = f"SGLang refuses it on servers of role {DECODE} {reason}"
        raise InputError(refusal, key=("scheduler", "host_cache"))


def extra_slots(section: SglangKeys) -> int:
    """Request slots of a decode server beyond `max_running_requests`, for KV on its way.

    Source: SGLang 0.5.23, `handle_pd_disaggregation` in arg_groups/pd_disaggregation_hook.py.
    """
    given = section.disaggregation_decode_extra_slots
    if given is not None:
        return given
    slots = section.max_running_requests
    is_given = "max_running_requests" in section.model_fields_set
    return _EXTRA_PER_SLOT * slots if is_given and slots <= _FEW_SLOTS else 0


def host_tokens(ratio: float | None, pool_tokens: int, page_size: int) -> int | None:
    """The host memory for a pool, in tokens; None: it never runs out.

    `ratio`: see `retraction_host_ratio`. SGLang adds a page to what follows from it.
    """
    if not ratio:
        return None if ratio is None else 0
    return (int(pool_tokens * ratio) // page_size + 1) * page_size


def retraction_host_ratio(
    section: SglangKeys, config: SchedulerConfig, model: "ModelShape | None"
) -> float | None:
    """Host memory as a multiple of the pools; None: it never runs out, 0: there is none.

    Raises InputError: SGLang does not start with these settings, or they are not simulated.
    """
    reason = _why_no_host_pool(section, model)
    usual = _CPU_TENSOR if reason else _HOST_POOL
    backup = section.disaggregation_decode_retraction_backup or usual
    if backup != _HOST_POOL:
        if section.hicache_ratio is not None:
            kept = f"is the size of the host pool, but {BACKUP_KEY} is {backup}"
            raise InputError(kept, key=("scheduler", RATIO_KEY))
        return None if backup == _CPU_TENSOR else 0.0
    if reason:
        raise InputError(f"{_HOST_POOL} does not go with {reason}", key=("scheduler", BACKUP_KEY))
    pool_tokens, page_size = config.pool_tokens, config.page_size
    ratio = section.hicache_ratio
    if ratio is None:
        longest = min(config.context_length + _MORE_THAN_CONTEXT, pool_tokens)
        ratio = max(_LEAST_RATIO, -(-longest // page_size) * page_size / pool_tokens)
    return ratio


def _why_no_host_pool(section: SglangKeys, model: "ModelShape | None") -> str:
    """What SGLang's host pool does not go with; empty: there is nothing."""
    if section.disaggregation_decode_enable_radix_cache:
        return "disaggregation_decode_enable_radix_cache"
    if section.enable_priority_scheduling and not section.disable_priority_preemption:
        return "enable_priority_scheduling without disable_priority_preemption"
    if model is None:
        return ""
    layers = [layer.attention for layer in model.layers]
    if any(each.pair_flops != each.decode_pair_flops for each in layers):
        return "models with latent attention"
    return "models with states" if any(each.state_elements for each in layers) else ""
