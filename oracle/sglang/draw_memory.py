"""Draws what a server may have beside one pool: a window pool, host memory, or a pool of states."""

import random

from oracle.sglang.draw_plain import Config


def draw_window(rng: random.Random, config: Config) -> Config:
    """Settings of the pool for layers with a window, from tight to as large as the other."""
    page, pool = config["page_size"], config["kv_pool_tokens"]
    window = rng.choice([1, 7, 16, 31, 64, 127, 128, 255])
    ratio = rng.choice([0.3, 0.5, 0.8, 0.8, 1.0])
    ratio = max(ratio, min(1.0, (2 * window + 4 * page) / pool))
    return {
        "sliding_window": window,
        "swa_full_tokens_ratio": ratio if config["chunked_prefill_size"] else 1.0,
        "swa_eviction_interval": rng.choice([1, 8, 128, 128]),
    }


def draw_host(rng: random.Random, config: Config) -> Config:
    """Settings of host memory, from smaller than the pool to large, and of its link.

    A prefix cache is needed. A state takes as long to copy as some hundred tokens.
    """
    return {
        "disable_radix_cache": False,
        "ignore_eos": False,
        "hicache_ratio": rng.choice([0.3, 0.8, 1.5, 2.0, 4.0]),
        "hicache_write_policy": rng.choice(
            ["write_through", "write_through", "write_through_selective", "write_back"]
        ),
        # Not a round number: a copy never ends at the very time of a step.
        "copy_s_per_token": rng.choice([1.0137e-7, 1.30731e-6, 2.1173e-5]),
        **(
            {"state_copy_tokens": rng.choice([40, 300])}
            if config.get("max_mamba_cache_size")
            else {}
        ),
    }


def draw_states(rng: random.Random, config: Config) -> Config:
    """Settings of the states' pool, from just large enough to ample.

    Without extra buffers pages have one token, and steps do not overlap. SGLang admits as many
    requests as have room for all of their states.
    """
    strategy = rng.choice(["no_buffer", "extra_buffer"])
    rows = config["max_running_requests"] = min(config["max_running_requests"], 16)
    changes: Config = {"mamba_radix_cache_strategy": strategy}
    if strategy == "no_buffer":
        changes |= {"page_size": 1, "enable_overlap": False, "prefill_delayer": None}
        most = 3
    else:
        most = 5 if config["enable_overlap"] else 4
        if config["chunked_prefill_size"]:
            changes["chunked_prefill_size"] = max(config["chunked_prefill_size"], 256)
    states = most * rows + rng.choice([0, 0, 1, 3, 8, 40, 200])
    changes["max_mamba_cache_size"] = states
    changes["mamba_track_interval"] = max(rng.choice([64, 128, 256]), config["page_size"])
    # Without a prefix cache there is one state for each running request, and nothing to decide.
    return changes | {"disable_radix_cache": False, "ignore_eos": False}
