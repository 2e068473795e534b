"""The scheduler of an SGLang that the user has installed."""

from typing import Any

from sim.core.units import NS_PER_S
from sim.installed.process import EngineServer
from sim.installed.scheduler import EngineScheduler
from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.scheduler import SglangScheduler

_SAME_NAME = (
    "page_size", "max_prefill_tokens", "max_running_requests", "max_queued_requests",
    "prefill_max_requests", "schedule_conservativeness", "clip_max_new_tokens",
    "enable_mixed_chunk", "disable_radix_cache", "enable_priority_scheduling",
    "schedule_low_priority_values_first", "disable_priority_preemption", "retraction_policy",
    "random_seed", "init_new_token_ratio", "min_new_token_ratio_factor",
    "new_token_ratio_decay_steps", "retract_decode_steps", "prefill_decode_interval",
    "prefill_decode_interval_min_bs", "min_free_slots_delay",
)  # fmt: skip
_OTHER_NAME = {
    "policy": "schedule_policy",
    "kv_pool_tokens": "max_total_tokens",
    "context_len": "context_length",
    "enable_overlap": "overlaps",
    "priority_preemption_threshold": "priority_scheduling_preemption_threshold",
    "eviction_policy": "radix_eviction_policy",
    "in_batch_check_threshold": "in_batch_prefix_check_threshold",
    "in_batch_deprioritize_threshold": "in_batch_prefix_deprioritize_threshold",
}
_EVICTION_KEYS = {
    "slru": ("protected_threshold",),
    "tlru": ("threshold", "next_prompt_estimate"),
}


def engine_scheduler(config: SchedulerConfig, like: SglangScheduler) -> EngineScheduler:
    """A scheduler that asks `config.engine`; `like` is the family's own.

    Raises InputError: the engine cannot be started, or refuses the settings.
    """
    return EngineScheduler(EngineServer(config.engine, engine_settings(config)), like, keeps=False)


def engine_settings(config: SchedulerConfig) -> dict[str, Any]:
    """The settings under the names of `sim.installed.inside.sglang.settings`."""
    settings = {name: getattr(config, name) for name in _SAME_NAME}
    settings |= {theirs: getattr(config, ours) for theirs, ours in _OTHER_NAME.items()}
    settings["chunked_prefill_size"] = config.chunked_prefill_size if config.chunking else None
    for name in ("waiting_timeout", "running_timeout"):
        timeout_ns = getattr(config, f"{name}_ns")
        settings[f"{name}_s"] = None if timeout_ns is None else timeout_ns / NS_PER_S
    if keys := _EVICTION_KEYS.get(config.radix_eviction_policy):
        given = config.radix_eviction_policy_config
        settings["eviction_policy_config"] = {key: getattr(given, key) for key in keys}
    if (delayer := config.prefill_delayer) is not None:
        settings["prefill_delayer"] = {
            "max_delay_passes": delayer.max_delay_passes,
            "token_usage_low_watermark": delayer.token_usage_low_watermark,
            "queue_min_ratio": delayer.queue_min_ratio,
            "max_delay_ms": delayer.max_delay_ns / 1e6,
        }
    return settings | _pool_settings(config)


def _pool_settings(config: SchedulerConfig) -> dict[str, Any]:
    """What is said of windows and states, of a model that has such layers."""
    settings: dict[str, Any] = {}
    if (window := config.window) is not None:
        settings |= {
            "sliding_window": window.window,
            "window_pool_tokens": window.pool_tokens,
            "swa_eviction_interval": window.eviction_interval,
        }
    if (states := config.states) is not None:
        settings |= {
            "max_mamba_cache_size": states.num_states,
            "mamba_radix_cache_strategy": "extra_buffer" if states.num_tracked else "no_buffer",
            "mamba_track_interval": states.track_tokens,
        }
    return settings
