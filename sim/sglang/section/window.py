"""The keys of the pool for layers with a sliding window: what goes together, and what they mean.

How a GPU's memory is shared out between this pool and the other one: SGLang 0.5.23,
`HybridSWAPoolConfigurator` and `SWARequestCapPoolConfigurator` of model_executor/
pool_configurator.py.
"""

from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.sglang.cache.settings import WindowSettings
from sim.sglang.config import SchedulerConfig
from sim.sglang.section.roles import extra_slots
from sim.sglang.section.speculation import num_verified
from sim.sglang.version_rules import NEWEST
from sim.validation import KeysError

if TYPE_CHECKING:
    from sim.family.section import MemoryForKv
    from sim.latency.shapes import ModelShape
    from sim.sglang.section.keys import SglangKeys


KEY = "sliding_window"
# Described architectures whose windows SGLang keeps in a pool of their own (0.5.23:
# `is_hybrid_swa_model` of configs/model_config.py). Gemma 2 and 3 keep all tokens in all layers.
_WITH_POOL = ("gpt_oss", "llama4_text")
_RATIO = "swa_full_tokens_ratio"


def check_window(section: "SglangKeys") -> None:
    """Refuse what is not simulated with two pools, and what a server would hang with.

    Raises:
        KeysError: with the keys.
    """
    if section.sliding_window is None or section.disable_hybrid_swa_memory:
        return
    if section.version != NEWEST:
        raise KeysError(f"{KEY} is simulated with version {NEWEST} only", KEY, "version")
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

    Raises:
        InputError: no model is named, it has no layers with windows beside others, or SGLang keeps
            one pool for it all the same.
    """
    where = ("scheduler", KEY)
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

    Raises:
        InputError: the pool cannot hold a window and a page: SGLang refuses to start.
    """
    window = section.sliding_window
    if window is None or section.disable_hybrid_swa_memory:
        return None
    if isinstance(window, str):
        raise InputError("model needs the scenario's model", key=("scheduler", KEY))
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

    Raises:
        InputError: the window pool leaves no room.
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
        raise InputError(reason, key=("scheduler", KEY))
    return int(left // other_bytes)
