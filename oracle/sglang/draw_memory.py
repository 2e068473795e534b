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


def draw_storage(rng: random.Random, config: Config) -> Config:
    """Settings of the storage tier, and of a store without times at which steps end.

    Pool and host memory are small, so that what is asked for again is often in the store alone.
    Time-outs are no whole nanoseconds, so that none is over at the very time of a decision.
    """
    page = config["page_size"]
    num_pages = max(24, min(config["kv_pool_tokens"], rng.choice([1024, 2048, 3072])) // page)
    return {
        "kv_pool_tokens": num_pages * page,
        "hicache_ratio": rng.choice([0.6, 0.9, 1.2, 1.6]),
        "hicache_storage_backend": "file",
        "hicache_storage_prefetch_policy": rng.choice(["best_effort", "wait_complete", "timeout"]),
        "hicache_storage_prefetch_retry_poll_interval": rng.choice([8, 8, 0, 1, 3]),
        "hicache_storage_prefetch_retry_max_attempts": rng.choice([8, 8, 0, 2]),
        "prefetch_threshold": rng.choice([1, 1, page, 2 * page, 64]),
        "prefetch_timeout_base": rng.choice([5e-10, 2.00000005e-2, 3.1371000005e-1]),
        "prefetch_timeout_per_ki_token": rng.choice([0.0, 0.01024, 0.1024]),
        "store": {
            "capacity_pages": rng.choice([None, None, None, 2 * num_pages, 6 * num_pages]),
            "lookup_s": rng.choice([1.3717e-5, 5.37173e-4, 1.137173e-2]),
            "read_latency_s": rng.choice([1.1313e-5, 1.171717e-3]),
            "write_latency_s": rng.choice([1.7171e-5, 2.131313e-3]),
            "read_s_per_token": rng.choice([1.0371e-7, 5.3713e-6, 1.07131e-4]),
            "write_s_per_token": rng.choice([2.0713e-7, 7.1713e-6, 1.37171e-4]),
            "pages_at_once": rng.choice([1, 8, 128]),
            "failed_read_share": rng.choice([0, 0, 0, 0.02]),
            "failed_write_share": rng.choice([0, 0, 0, 0.1]),
            "seed": rng.randrange(1 << 16),
        },
    }
