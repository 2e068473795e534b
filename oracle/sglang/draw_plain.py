"""Draws the settings of a server, and its load, for cases of every kind."""

import random
from typing import Any

Config = dict[str, Any]
Row = dict[str, Any]

_AT_ONCE = 1e9
_EVICTION = ("lru", "lru", "lfu", "slru", "tlru", "priority")


def draw_config(rng: random.Random) -> Config:
    """Settings of one server, often close to the limits of what it can serve."""
    page_size = rng.choice([1, 1, 1, 4, 16, 32, 64, 128])
    pool_tokens = rng.choice([1024, 2048, 3072, 4608, 6400, 12800, 32000])
    if page_size * 16 > pool_tokens:
        pool_tokens = page_size * rng.randint(16, 60)
    chunk = rng.choice([None, 256, 512, 1024, 2048, 8192])
    if chunk and chunk % page_size:
        chunk = page_size * 4
    by_priority = rng.random() < 0.25
    no_cache = rng.random() < 0.15
    policies = ["fcfs", "lpm", "lpm", "lof", "dfs-weight", "random", "hrrn", "routing-key"]
    if by_priority:
        policies = ["fcfs", "lof"]
    elif not no_cache:
        policies.append("shortest-prefill-first")
    eviction = rng.choice(_EVICTION)
    overlap = rng.random() < 0.45
    return {
        "eviction_policy": eviction,
        "eviction_policy_config": _eviction_config(rng, eviction),
        "policy": rng.choice(policies),
        "random_seed": rng.randrange(1 << 16),
        "page_size": page_size,
        "kv_pool_tokens": pool_tokens,
        "chunked_prefill_size": chunk,
        "max_prefill_tokens": rng.choice([512, 1024, 4096, 16384]),
        "max_running_requests": rng.choice([2, 4, 8, 16, 32, 128]),
        "prefill_max_requests": rng.choice([None, None, None, 3]),
        "schedule_conservativeness": rng.choice([0.1, 0.3, 0.6, 0.7, 1.0, 1.3]),
        "clip_max_new_tokens": rng.choice([16, 64, 256, 4096]),
        "enable_mixed_chunk": rng.random() < 0.4,
        "disable_radix_cache": no_cache,
        "enable_overlap": overlap,
        "prefill_decode_interval": rng.choice([0, 0, 0, 1, 2, 7]),
        "prefill_decode_interval_min_bs": rng.choice([0, 1, 3]),
        "min_free_slots_delay": rng.choice([0, 0, 0, 2, 5]),
        "context_len": rng.choice([131072, 131072, 900]),
        "max_queued_requests": rng.choice([None, None, None, 3, 20]),
        "waiting_timeout_s": rng.choice([None, None, None, 0.037100113, 0.611000113]),
        "running_timeout_s": rng.choice([None, None, None, 0.057700113, 0.733000113]),
        "prefill_delayer": _delayer(rng) if overlap and rng.random() < 0.3 else None,
        "enable_priority_scheduling": by_priority,
        "schedule_low_priority_values_first": rng.random() < 0.4,
        "priority_preemption_threshold": rng.choice([0, 2, 4, 10]),
        "disable_priority_preemption": rng.random() < 0.2,
        "retraction_policy": rng.choice(["length", "length", "priority"])
        if by_priority
        else "length",
        "ignore_eos": no_cache and rng.random() < 0.7,
        "latency": {
            "a": rng.choice([0.002, 0.005]),
            "b": rng.choice([1e-5, 4e-5]),
            "c": rng.choice([5e-5, 2e-4]),
            "d": rng.choice([0, 2e-8]),
        },
    }


def _delayer(rng: random.Random) -> Config:
    return {
        "max_delay_passes": rng.choice([1, 3, 30]),
        "token_usage_low_watermark": rng.choice([None, None, 0.3]),
        "queue_min_ratio": rng.choice([None, 0.2, 1.0]),
        "max_delay_ms": rng.choice([0.0, 33.3, 5000.0]),
    }


def _eviction_config(rng: random.Random, policy: str) -> Config | None:
    if policy == "slru" and rng.random() < 0.7:
        return {"protected_threshold": rng.choice([0, 1, 3, 5])}
    if policy == "tlru":
        estimate = rng.choice([0, 10, 100])
        return {
            "threshold": estimate + rng.choice([1, 20, 200, 1500]),
            "next_prompt_estimate": estimate,
        }
    return None


def _odd_time(time_s: float) -> float:
    """A whole number of ns at which few steps end: most end at multiples of 10 ns. 0 stays 0."""
    return round(round(time_s, 6) + 3.71e-7, 9) if time_s else 0.0


def draw_workload(rng: random.Random, config: Config) -> list[Row]:
    """Requests that share prefixes; some contain an earlier request's prompt and answer."""
    longest = max(8, min(config["kv_pool_tokens"] // rng.choice([3, 6, 12]), 1500))
    longest_output = rng.choice([20, 80, 300])
    impatience = rng.choice([0, 0, 0, 0.1, 0.5])
    patience_s = rng.choice([0.02, 0.2, 1.5])
    rate_rps = rng.choice([5, 20, 100, _AT_ONCE])
    arrival_s = 0.0
    answered: list[list[list[int]]] = []
    rows: list[Row] = []
    for i in range(rng.choice([30, 60, 150])):
        if rate_rps < _AT_ONCE:
            arrival_s += rng.expovariate(rate_rps)
        segments: list[list[int]] = []
        if answered and rng.random() < 0.3:
            segments = [list(segment) for segment in rng.choice(answered)]
        elif rng.random() < 0.5:
            segments = [[800 + rng.randint(0, 4), rng.randint(1, longest)]]
        segments.append([5000 + i, rng.randint(1, max(2, longest // 2))])
        if rng.random() < 0.02:
            segments.append([6000 + i, rng.choice([900, config["kv_pool_tokens"] + 9])])
        output = rng.randint(1, longest_output)
        limit = rng.choice([output, output, output * 4, rng.randint(1, longest_output), output + 7])
        row: Row = {
            "rid": f"c{i:03d}",
            "arrival": _odd_time(arrival_s),
            "segments": segments,
            "output_len": limit if config["ignore_eos"] else output,
            "max_new_tokens": limit,
            "output_seed": 70000 + i,
        }
        if config["enable_priority_scheduling"] or config["eviction_policy"] == "priority":
            row["priority"] = rng.randint(0, 12)
        if config["policy"] == "routing-key" and rng.random() < 0.8:
            row["routing_key"] = f"k{rng.randint(0, 4)}"
        if rng.random() < impatience:
            row["gives_up_after"] = round(round(rng.expovariate(1 / patience_s), 7) + 5.3e-8, 9)
        if output > 2:
            answered.append([*segments, [70000 + i, output - 1]])
        rows.append(row)
    return rows
