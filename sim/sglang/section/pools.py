"""The keys of the pools of states and of sliding windows: what goes together, what they mean.

How a GPU's memory is shared out between states and KV, and which request limit follows: SGLang
0.5.23, `_handle_max_mamba_cache`, `_calculate_mamba_ratio` and `resolve_max_num_reqs` of
mem_cache/kv_cache_configurator.py, and `calculate_pool_sizes` of model_executor/
pool_configurator.py. The bytes of a state are those of `mamba_cache_per_req` in
configs/mamba_utils.py.

How it is shared out between the pool of layers with windows and the other one: SGLang 0.5.23,
`HybridSWAPoolConfigurator` and `SWARequestCapPoolConfigurator` of model_executor/
pool_configurator.py.
"""

from math import lcm
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.sglang.cache.settings import StateSettings, WindowSettings
from sim.sglang.config import SchedulerConfig
from sim.sglang.section.roles import extra_slots
from sim.sglang.section.speculation import num_verified
from sim.sglang.version_rules import NEWEST
from sim.validation import KeysError

if TYPE_CHECKING:
    from sim.family.section import MemoryForKv
    from sim.latency.shapes import ModelShape
    from sim.sglang.section.keys import SglangKeys

STATES = "max_mamba_cache_size"
_WHERE = ("scheduler", STATES)
# States for each running request, beside the tracked ones.
_STATES_OF_REQUEST = 3
_STRATEGY = "mamba_radix_cache_strategy"
# SGLang 0.5.23's `FLA_CHUNK_SIZE`, which its kernels compute states for.
_KERNEL_TOKENS = 64


def check_states(section: "SglangKeys") -> None:
    """Refuse what is not simulated with states.

    Raises KeysError: with the keys.
    """
    if section.max_mamba_cache_size is None:
        return
    if section.version != NEWEST:
        raise KeysError(f"{STATES} is simulated with version {NEWEST} only", STATES, "version")
    if not keeps_states(section):
        return
    if strategy(section) == "extra_buffer":
        _check_tracking(section)
    elif section.page_size != 1:
        raise KeysError(
            f"{_STRATEGY} no_buffer needs page_size 1, not {section.page_size}: give extra_buffer",
            _STRATEGY,
            "page_size",
        )
    elif not section.disable_overlap_schedule:
        raise KeysError(
            f"{_STRATEGY} no_buffer needs disable_overlap_schedule: true",
            _STRATEGY,
            "disable_overlap_schedule",
        )


def _check_tracking(section: "SglangKeys") -> None:
    """What SGLang refuses to start with (arg_groups/mamba_hook.py and overrides.py).

    Raises KeysError: with the keys.
    """
    page_size = section.page_size
    if max(_KERNEL_TOKENS, page_size) % min(_KERNEL_TOKENS, page_size):
        raise KeysError(
            f"{STATES} needs a page_size that divides {_KERNEL_TOKENS}, or a multiple of it",
            STATES,
            "page_size",
        )
    if section.mamba_track_interval % page_size:
        reason = f"mamba_track_interval must be whole pages of {page_size}"
        raise KeysError(reason, "mamba_track_interval", "page_size")
    drafts = section.speculative_algorithm
    if drafts is not None and section.mamba_track_interval < num_verified(section):
        raise KeysError(
            f"mamba_track_interval must be at least the {num_verified(section)} tokens that a step"
            " verifies, as in SGLang (arg_groups/mamba_hook.py, validate_mamba_extra_buffer)",
            "mamba_track_interval",
            "speculative_algorithm",
        )


def state_settings(section: "SglangKeys", config: SchedulerConfig) -> StateSettings | None:
    """The settings of the pool of states; None: there is none.

    Raises InputError: how many states there are is not known.
    """
    num_states = section.max_mamba_cache_size
    if num_states is None or not keeps_states(section):
        return None
    if num_states == "model":
        raise InputError("model needs the scenario's model and GPU", key=("scheduler", STATES))
    checkpoint_tokens = lcm(max(_KERNEL_TOKENS, config.page_size), config.page_size)
    return StateSettings(
        num_states,
        num_tracked(section, overlaps=config.overlaps),
        checkpoint_tokens,
        lcm(checkpoint_tokens, section.mamba_track_interval),
        _KERNEL_TOKENS,
    )


def keeps_states(section: "SglangKeys") -> bool:
    """Whether the prefix cache has states: without it, each running request has one, and no more.

    SGLang then has a state for each request slot, so that nothing is decided about them.
    """
    return section.max_mamba_cache_size is not None and not section.disable_radix_cache


def strategy(section: "SglangKeys") -> str:
    """What `auto` means for the models whose states are tracked (arg_groups/overrides.py).

    SGLang takes `no_buffer` if nothing asks for more: neither overlap scheduling nor pages.
    """
    if section.mamba_radix_cache_strategy != "auto":
        return section.mamba_radix_cache_strategy
    is_plain = section.disable_overlap_schedule and section.page_size == 1
    return "no_buffer" if is_plain else "extra_buffer"


def num_tracked(section: "SglangKeys", *, overlaps: bool) -> int:
    """Tracked states of a running request."""
    if strategy(section) == "no_buffer":
        return 0
    return 2 if overlaps else 1


def most_running(section: "SglangKeys", states: StateSettings | None) -> int | None:
    """Requests that may run at a time beside the states in the cache; None: no such limit.

    Raises InputError: not a single one.
    """
    num_states = section.max_mamba_cache_size
    if not isinstance(num_states, int):
        return None
    of_request = 1 if states is None else _STATES_OF_REQUEST + states.num_tracked
    if num_states < of_request:
        reason = f"{num_states} states are less than the {of_request} of one running request"
        raise InputError(reason, key=_WHERE)
    return num_states // of_request


def states_in(section: "SglangKeys", model: "ModelShape | None", free: "MemoryForKv") -> int:
    """The number of states of the pool, as given, or as many as fit into the memory.

    With r = `mamba_full_memory_ratio`, the pool takes r / (1 + r) of what is free. One of its
    states is never handed out. With drafts, a request that runs has a state more for each token
    that a step verifies, and so has the state that is never handed out.

    Raises InputError: the model has no states, is not known, or not one state fits.
    """
    if isinstance(section.max_mamba_cache_size, int):
        return section.max_mamba_cache_size
    size = _state_bytes(model, free)
    if section.disable_radix_cache:
        return section.max_running_requests
    ratio = section.mamba_full_memory_ratio
    num_drafted = _num_drafted_states(section)
    budget = free.num_bytes * ratio / (1 + ratio) - size * (1 + num_drafted)
    num_states = int(budget // (size * (1 + num_drafted / _states_of_request(section))))
    if num_states < 1:
        reason = f"there is no room for a state of {size} bytes beside the weights"
        raise InputError(reason, key=_WHERE)
    return num_states


def tokens_beside_states(
    section: "SglangKeys", model: "ModelShape | None", free: "MemoryForKv"
) -> int | None:
    """KV tokens that fit beside the states; None: there are none, or their size is not known.

    Raises InputError: as `states_in`; or the states leave no room.
    """
    num_states = section.max_mamba_cache_size
    if num_states is None or free.num_bytes <= 0:
        return None
    if num_states != "model" and (model is None or not model.state_bytes):
        return None
    size = _state_bytes(model, free)
    num_states = states_in(section, model, free)
    num_running = min(section.max_running_requests, num_states // _states_of_request(section))
    num_drafted = _num_drafted_states(section) * (num_running + 1)
    left = free.num_bytes - (num_states + 1 + num_drafted) * size
    if left <= 0 or model is None:
        raise InputError(f"{num_states} states leave no room for KV", key=_WHERE)
    return int(left // model.kv_bytes_on_gpu(free.tp))


def _states_of_request(section: "SglangKeys") -> int:
    """States of the pool for each running request (`_calculate_mamba_ratio`)."""
    if section.disable_radix_cache:
        return 1
    return _STATES_OF_REQUEST + num_tracked(section, overlaps=not section.disable_overlap_schedule)


def _num_drafted_states(section: "SglangKeys") -> int:
    """States that a running request has outside the pool, for the tokens that a step verifies."""
    return 0 if section.speculative_algorithm is None else num_verified(section)


def _state_bytes(model: "ModelShape | None", free: "MemoryForKv") -> int:
    """Bytes of a state on each of the GPUs, which share its heads."""
    if free.num_stages > 1:
        raise InputError("is not simulated with latency.pp above 1", key=_WHERE)
    if model is None:
        raise InputError("needs a model whose shape is known", key=_WHERE)
    if not model.state_bytes:
        raise InputError(f"{model.name} has no state-space or linear attention layers", key=_WHERE)
    return -(-model.state_bytes // free.tp)


WINDOW = "sliding_window"
# Described architectures whose windows SGLang keeps in a pool of their own (0.5.23:
# `is_hybrid_swa_model` of configs/model_config.py). Gemma 2 and 3 keep all tokens in all layers.
_WITH_POOL = ("gpt_oss", "llama4_text")
_RATIO = "swa_full_tokens_ratio"


def check_window(section: "SglangKeys") -> None:
    """Refuse what is not simulated with two pools, and what a server would hang with.

    Raises KeysError: with the keys.
    """
    if section.sliding_window is None or section.disable_hybrid_swa_memory:
        return
    if section.version != NEWEST:
        raise KeysError(f"{WINDOW} is simulated with version {NEWEST} only", WINDOW, "version")
    if section.chunked_prefill_size < 0 and section.swa_full_tokens_ratio < 1:
        raise KeysError(
            f"without chunked prefill, {_RATIO} must be 1: SGLang keeps a prompt waiting for ever"
            " that does not fit into the pool for sliding windows at once",
            _RATIO,
            "chunked_prefill_size",
        )


def has_window_pool(model: "ModelShape") -> bool:
    """Whether SGLang keeps the KV of layers with windows in a pool of their own."""
    return model.model_type in _WITH_POOL


def window_of_model(model: "ModelShape | None") -> int:
    """SGLang's `sliding_window_size` (0.5.23, load_model_utils.py, models/gpt_oss.py).

    A chunk is taken as it is. A window is one less than the model's, whose tokens attend to
    themselves, too.

    Raises InputError: no model is named, it has no layers with windows beside others, or SGLang
    keeps one pool for it all the same.
    """
    where = ("scheduler", WINDOW)
    if model is None:
        raise InputError("model needs the scenario's model", key=where)
    windows = {layer.attention.window for layer in model.layers}
    if None not in windows or len(windows) != 2:
        kinds = "has no layers with one sliding window beside layers without"
        raise InputError(f"{model.name} {kinds}", key=where)
    if not has_window_pool(model):
        reason = f"SGLang keeps one pool for {model.name}, whatever its windows are: leave it out"
        raise InputError(reason, key=where)
    is_chunked = any(layer.attention.is_chunked for layer in model.layers)
    return max(window for window in windows if window is not None) - (not is_chunked)


def most_in_windows(section: "SglangKeys", window: int) -> int | None:
    """Tokens of a window pool that is made for the requests that may run; None: a share decides.

    Without a prefix cache SGLang makes a pool that it sizes itself as large as requests can use
    (0.5.23: `compute_swa_request_cap` of model_executor/pool_configurator.py). A request holds its
    window, what it has not given back yet, and room for its next tokens. A chunk of a prompt comes
    on top, or two under overlap scheduling; on a decode server, a window for each request whose KV
    is on its way.
    """
    chunk, page = section.chunked_prefill_size, section.page_size
    if not section.disable_radix_cache or section.max_total_tokens is not None:
        return None
    if chunk <= 0 and not section.decodes:
        return None
    num_new, next_tokens = 1, page
    if section.speculative_algorithm is not None:
        num_new = num_verified(section)
        next_tokens = max(num_new, section.speculative_num_steps or 0)
        if section.disable_overlap_schedule:
            next_tokens = -(-next_tokens // page) * page
        else:
            next_tokens *= 2
    of_request = window + section.swa_eviction_interval * num_new + page + next_tokens
    most = of_request * section.max_running_requests
    if section.decodes:
        most += (window + page) * extra_slots(section)
    else:
        most += (1 if section.disable_overlap_schedule else 2) * chunk + page
    return -(-most // page) * page


def window_settings(section: "SglangKeys", config: SchedulerConfig) -> WindowSettings | None:
    """The window pool's settings; None: there is one pool for all layers.

    Raises InputError: the pool cannot hold a window and a page: SGLang refuses to start.
    """
    window = section.sliding_window
    if window is None or section.disable_hybrid_swa_memory:
        return None
    if isinstance(window, str):
        raise InputError("model needs the scenario's model", key=("scheduler", WINDOW))
    page_size = config.page_size
    num_pages = int(config.pool_tokens * section.swa_full_tokens_ratio) // page_size
    most = most_in_windows(section, window)
    if most is not None:
        num_pages = min(most, config.pool_tokens) // page_size
    if num_pages * page_size <= window + page_size:
        raise InputError(
            f"leaves {num_pages * page_size} tokens of {config.pool_tokens} for sliding windows:"
            f" more than a window of {window} and a page of {page_size} are needed",
            key=("scheduler", _RATIO),
        )
    return WindowSettings(window, num_pages * page_size, section.swa_eviction_interval)


def tokens_beside_windows(
    section: "SglangKeys", model: "ModelShape | None", free: "MemoryForKv"
) -> int | None:
    """KV tokens of the main pool; None: there is one pool, or nothing is known of its layers.

    Raises InputError: the window pool leaves no room.
    """
    if section.sliding_window is None or section.disable_hybrid_swa_memory:
        return None
    if model is None or not has_window_pool(model) or free.num_stages > 1 or free.num_bytes <= 0:
        return None
    window_bytes = sum(
        layer.count * layer.attention.kv_bytes(model.kv_element_bytes, free.tp)
        for layer in model.layers
        if layer.attention.window is not None
    )
    other_bytes = model.kv_bytes_on_gpu(free.tp) - window_bytes
    window = section.sliding_window
    most = most_in_windows(section, window_of_model(model) if window == "model" else window)
    if most is None:
        return int(free.num_bytes // (other_bytes + section.swa_full_tokens_ratio * window_bytes))
    left = free.num_bytes - most * window_bytes
    if left <= 0:
        reason = f"the {most} tokens that all requests have in windows leave no room for other KV"
        raise InputError(reason, key=("scheduler", WINDOW))
    return int(left // other_bytes)
