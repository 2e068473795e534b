"""The settings of a case, and how SGLang gets them: as server arguments and from the environment.

The keys of a case's configuration with their defaults are in `DEFAULTS`. These keys are absent
unless a server has what they are about:

- windows: `sliding_window` (tokens), `swa_full_tokens_ratio` or `window_pool_tokens`, and
  `swa_eviction_interval` (tokens);
- states: `max_mamba_cache_size` (states), `mamba_radix_cache_strategy`, `mamba_track_interval`
  (tokens);
- host memory: `hicache_ratio`, `hicache_write_policy`, and `copy_s_per_token`, the seconds that the
  copy of a token takes in either direction; a state takes as long as `state_copy_tokens` tokens;
- storage below it: `hicache_storage_backend` and what goes with it under SGLang's names, and
  `store`, which says how fast the store is (`oracle.sglang.storage`);
- drafts: `speculation`, with `algorithm`, `num_steps`, `num_draft_tokens` and `by_position`, the
  chance of each draft to be accepted if those before it are;
- roles: `disaggregation_mode`; for a decode server also `num_reserved_decode_tokens`,
  `disaggregation_decode_polling_interval`, `disaggregation_decode_retraction_backup` (with
  `host_pool`, a `hicache_ratio` of null is SGLang's default) and
  `disaggregation_decode_extra_slots`. Its radix cache is on unless `disable_radix_cache`;
- pipelines: `stages`; ranks of DP attention: `ranks`. The other settings are those of each rank.
"""

import json
from typing import Any

Config = dict[str, Any]

DEFAULTS: Config = {
    "policy": "fcfs",
    "random_seed": 0,
    "page_size": 1,
    "kv_pool_tokens": 32768,  # rounded down to whole pages
    "context_len": 131072,
    "chunked_prefill_size": 8192,  # null: no chunks
    "max_prefill_tokens": 16384,
    "max_running_requests": 256,
    "max_queued_requests": None,
    "prefill_max_requests": None,
    "schedule_conservativeness": 1.0,
    "clip_max_new_tokens": 4096,
    "enable_mixed_chunk": False,
    "disable_radix_cache": False,
    "eviction_policy": "lru",
    "eviction_policy_config": None,
    "enable_overlap": False,
    "ignore_eos": False,  # a request's own `ignore_eos` goes first
    "enable_priority_scheduling": False,
    "schedule_low_priority_values_first": False,
    "priority_preemption_threshold": 10,
    "disable_priority_preemption": False,
    "retraction_policy": "length",
    "prefill_decode_interval": 0,
    "prefill_decode_interval_min_bs": 0,
    "min_free_slots_delay": 0,
    "prefill_delayer": None,
    "waiting_timeout_s": None,
    "running_timeout_s": None,
    "init_new_token_ratio": 0.7,
    "min_new_token_ratio_factor": 0.14,
    "new_token_ratio_decay_steps": 600,
    "retract_decode_steps": 20,
    "in_batch_check_threshold": 32,
    "in_batch_deprioritize_threshold": 32,
    # Seconds of a step: a + b * prefill tokens + c * decode requests + d * tokens of context.
    "latency": {"a": 0.005, "b": 2e-5, "c": 1e-4, "d": 1e-8},
    "max_steps": 200_000,
    "sliding_window": None,
    "max_mamba_cache_size": None,
    "hicache_write_policy": None,
    "hicache_storage_backend": None,
    "speculation": None,
    "disaggregation_mode": "null",
    "disaggregation_decode_retraction_backup": "cpu_tensor",
    "stages": 1,
    "ranks": 1,
}

# Server arguments that are called as the keys of a configuration.
_SAME_NAME = (
    "page_size", "max_prefill_tokens", "max_running_requests", "max_queued_requests",
    "prefill_max_requests", "schedule_conservativeness", "enable_mixed_chunk",
    "disable_radix_cache", "enable_priority_scheduling", "schedule_low_priority_values_first",
    "disable_priority_preemption", "retraction_policy", "prefill_decode_interval_min_bs",
    "max_mamba_cache_size", "mamba_radix_cache_strategy", "mamba_track_interval",
    "num_reserved_decode_tokens", "disaggregation_decode_polling_interval",
)  # fmt: skip
_HOST_MEMORY = {
    "hicache_size": 0,
    "hicache_io_backend": "direct",
    "hicache_mem_layout": "layer_first",
}
_STORAGE = (
    "hicache_storage_backend", "hicache_storage_prefetch_policy",
    "hicache_storage_prefetch_retry_poll_interval", "hicache_storage_prefetch_retry_max_attempts",
)  # fmt: skip
_STORAGE_EXTRA = ("prefetch_threshold", "prefetch_timeout_base", "prefetch_timeout_per_ki_token")
_ENVIRONMENT = {
    "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "clip_max_new_tokens",
    "SGLANG_INIT_NEW_TOKEN_RATIO": "init_new_token_ratio",
    "SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR": "min_new_token_ratio_factor",
    "SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS": "new_token_ratio_decay_steps",
    "SGLANG_RETRACT_DECODE_STEPS": "retract_decode_steps",
    "IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD": "in_batch_check_threshold",
    "IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD": "in_batch_deprioritize_threshold",
    "SGLANG_REQ_WAITING_TIMEOUT": "waiting_timeout_s",
    "SGLANG_REQ_RUNNING_TIMEOUT": "running_timeout_s",
    "SGLANG_SWA_EVICTION_INTERVAL": "swa_eviction_interval",
}


def environment(config: Config) -> dict[str, str]:
    """The variables of a server's process."""
    settings = {variable: config.get(key) for variable, key in _ENVIRONMENT.items()}
    known = {variable: str(value) for variable, value in settings.items() if value is not None}
    return known | {"SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "rust"}


def has_host_pool(config: Config) -> bool:
    """Whether a decode server keeps the KV of retracted requests in host memory."""
    kept_in = config["disaggregation_decode_retraction_backup"]
    return bool(config["disaggregation_mode"] == "decode" and kept_in == "host_pool")


def extra_slots(config: Config) -> int:
    """A decode server's rows for requests in transfer, beside those of running requests.

    As in `handle_pd_disaggregation` (arg_groups/pd_disaggregation_hook.py).
    """
    given = config.get("disaggregation_decode_extra_slots")
    if given is not None:
        return int(given)
    most = int(config["max_running_requests"])
    return 2 * most if most <= 32 else 0


def server_arguments(config: Config) -> Config:
    """What a server with these settings is started with."""
    arguments = {key: config[key] for key in _SAME_NAME if key in config}
    arguments |= {
        "device": "cpu",
        "attention_backend": "torch_native",
        "schedule_policy": config["policy"],
        "chunked_prefill_size": config["chunked_prefill_size"] or -1,
        "disable_overlap_schedule": not config["enable_overlap"],
        "priority_scheduling_preemption_threshold": config["priority_preemption_threshold"],
        "radix_eviction_policy": config["eviction_policy"],
        "prefill_decode_interval": config["prefill_decode_interval"] or None,
        "pp_max_micro_batch_size": max(config["max_running_requests"] // config["stages"], 1),
    }
    if delayer := config["prefill_delayer"]:
        arguments["enable_prefill_delayer"] = True
        arguments |= {f"prefill_delayer_{key}": value for key, value in delayer.items()}
    if config["hicache_write_policy"]:
        # SGLang's host pool of states has no other layout; copies take as long in all of them.
        layout = "page_first_direct" if config["max_mamba_cache_size"] else "layer_first"
        policy = config["hicache_write_policy"]
        arguments |= {"enable_hierarchical_cache": True, "hicache_write_policy": policy}
        arguments |= _HOST_MEMORY | {"hicache_ratio": config["hicache_ratio"]}
        arguments["hicache_mem_layout"] = layout
    if config["hicache_storage_backend"]:
        arguments |= {key: config[key] for key in _STORAGE if key in config}
        extra = {key: config[key] for key in _STORAGE_EXTRA if key in config}
        arguments["hicache_storage_backend_extra_config"] = json.dumps(extra)
    if drafts := config["speculation"]:
        arguments |= {
            "speculative_algorithm": drafts["algorithm"],
            "speculative_num_steps": drafts["num_steps"],
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": drafts["num_draft_tokens"],
        }
    return arguments | _role_arguments(config)


def _role_arguments(config: Config) -> Config:
    role = config["disaggregation_mode"]
    if role == "null":
        return {}
    arguments = {
        "disaggregation_mode": role,
        "disaggregation_transfer_backend": "mooncake",
        "disaggregation_decode_enable_radix_cache": role == "decode"
        and not config["disable_radix_cache"],
        "disaggregation_decode_retraction_backup": config[
            "disaggregation_decode_retraction_backup"
        ],
    }
    if has_host_pool(config):
        arguments |= _HOST_MEMORY | {"hicache_ratio": config["hicache_ratio"]}
        arguments |= {
            "hicache_write_policy": "write_through",
            "disaggregation_decode_host_receive_threshold": 1,
        }
    return arguments
