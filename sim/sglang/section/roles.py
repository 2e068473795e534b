"""What the keys of the section mean for a server that only prefills, or only decodes.

Source: SGLang 0.5.23, `handle_pd_disaggregation` in arg_groups/pd_disaggregation_hook.py.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sim.core.errors import InputError
from sim.engine.server_config import BOTH, DECODE, PREFILL
from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.ranks import BY_ROOM, ROUND_ROBIN
from sim.sglang.section.keys import SglangKeys
from sim.sglang.section.retraction import RATIO_KEY, host_tokens, retraction_host_ratio
from sim.sglang.section.slots import extra_slots
from sim.sglang.section.speculation import check_drafts_of_decode_server, check_drafts_of_stages
from sim.validation import KeysError

if TYPE_CHECKING:
    from sim.latency.shapes import ModelShape

# SGLang's settings of such servers that are not simulated, with their defaults.
_NOT_SIMULATED: dict[str, object] = {
    "optimistic_prefill_attempts": 0,
    "disaggregation_decode_allocation_policy": "early",
    "disaggregation_decode_host_receive_threshold": 1,
    "disaggregation_decode_enable_offload_kvcache": False,
    "enable_pd_role_switch": False,
}


def without_unsimulated(given: Any) -> Any:
    """The keys of a section without settings of servers apart that are not simulated.

    Raises:
        KeysError: one of them has not SGLang's default.
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

    Raises:
        InputError: a setting is not simulated on such a server.
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
    if section.batching != "continuous":
        reason = f"a static batch is prefilled and decoded by one server, of role {BOTH}"
        raise InputError(reason, key=("scheduler", "batching"))
    method = load_balance_method(section.load_balance_method, role)
    config = replace(config, role=role, load_balance_method=method)
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


def _check_host_memory_of_decode_server(section: SglangKeys, config: SchedulerConfig) -> None:
    """Host memory is below the radix cache, which a decode server has only if asked.

    Source: SGLang 0.5.23, `handle_pd_disaggregation` in arg_groups/pd_disaggregation_hook.py, which
    switches the cache off, and the two functions that are named below.

    Raises:
        InputError: SGLang does not start with these settings.
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
        # SGLang starts, but never takes a copy for ended.
        reason = (
            "is not simulated on servers of role decode with latency.pp above 1: SGLang's loop does"
            " not look for ends of copies (event_loop_pp_disagg_decode,"
            " managers/scheduler_pp_mixin.py)"
        )
        raise InputError(reason, key=("scheduler", "host_cache"))
    if reason:
        refusal = f"SGLang refuses it on servers of role {DECODE} {reason}"
        raise InputError(refusal, key=("scheduler", "host_cache"))
