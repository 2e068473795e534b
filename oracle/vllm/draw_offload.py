"""Draws servers that keep KV in CPU memory."""

import random

from oracle.vllm.load import Config

# KV of a token of qwen2.5-0.5b: chunks of whole pages.
MODEL_BYTES = 12_288


def draw_offload(rng: random.Random, config: Config, *, is_new: bool) -> Config:
    """The same server with little or much CPU memory, and slow or fast copies.

    `is_new`: the version has all the settings.
    """
    blocks_per_chunk = rng.choice([1, 1, 1, 2, 3, 4])
    interval = config.get("prefix_cache_retention_interval") or 0
    if interval % (blocks_per_chunk * config["block_size"]):
        # vLLM wants whole chunks between the places that are kept.
        blocks_per_chunk = 1
    groups = config.get("kv_cache_groups", ())
    # vLLM fails when a step waits for a state: it counts one block for that and the chunk's own.
    has_states = any(group["kind"] == "mamba" for group in groups)
    # As many tokens as a part of the GPU's pool, or as several times as many.
    num_blocks = round((config["num_gpu_blocks"] - 1) * rng.choice([0.3, 0.7, 1, 1.5, 3, 10]))
    offload = {
        "num_chunks": max(1, num_blocks // blocks_per_chunk),
        "eviction_policy": rng.choice(["lru", "arc"]),
        "blocks_per_chunk": blocks_per_chunk,
        "store_threshold": rng.choice([0, 0, 0, 1, 2, 3]),
        "offload_prompt_only": rng.random() < 0.5,
        # Odd numbers: hardly any copy ends just when a step does.
        "copy_ns_per_block": rng.choice([1_003, 50_021, 400_009, 3_000_017]),
        "sync_load_tokens": 0 if has_states else rng.choice([0, 0, 0, 40, 150, 10_000]),
    }
    if not is_new:
        del offload["offload_prompt_only"], offload["sync_load_tokens"]
    return config | {"offload": offload}


def draw_simple(rng: random.Random, config: Config, *, is_lazy: bool) -> Config:
    """The same server with vLLM's other connector; `is_lazy`: for all cases."""
    offload = config["offload"]
    num_blocks = offload["num_chunks"] * offload["blocks_per_chunk"]
    kept = {"num_chunks": num_blocks, "copy_ns_per_block": offload["copy_ns_per_block"]}
    named = {"kv_connector": "SimpleCPUOffloadConnector", "lazy_offload": is_lazy}
    # Without prefix caching it does nothing.
    caches = config["enable_prefix_caching"] or rng.random() < 0.9
    groups = config.get("kv_cache_groups", [{"kind": "full_attention"}])
    if all(group["kind"] != "full_attention" for group in groups):
        # vLLM does not start without.
        more = {"kv_cache_groups": [{"kind": "full_attention"}, *groups]}
        config = config | more | {"num_gpu_blocks": 4 * config["num_gpu_blocks"]}
    return config | {"offload": kept | named, "enable_prefix_caching": caches}


def draw_tiers(rng: random.Random, config: Config, *, several: bool = False) -> Config:
    """The same server with a tier below its CPU memory, or with `several` of them."""
    offload = config["offload"]
    offload = offload | {"tier": _draw_tier(rng, config)}
    if several:
        offload |= {"more_tiers": [_draw_tier(rng, config) for _ in range(rng.choice([1, 1, 2]))]}
    return config | {"offload": offload | {"store_threshold": min(offload["store_threshold"], 1)}}


def _draw_tier(rng: random.Random, config: Config) -> Config:
    """A tier that is small or large, slow or fast."""
    offload = config["offload"]
    chunk_tokens = offload["blocks_per_chunk"] * config["block_size"]
    kind = rng.choice(["fs", "fs", "obj"])
    num_tokens = config["num_gpu_blocks"] * config["block_size"]
    capacity = rng.choice([None, None, num_tokens, 5 * num_tokens])
    times_ns = [1_003, 50_021, 400_009, 3_000_017]
    read_ns, write_ns = rng.choice(times_ns), rng.choice(times_ns)
    tier: Config = {
        "type": kind,
        "n_read_threads": rng.choice([1, 1, 2, 16]),
        "n_write_threads": rng.choice([1, 1, 2, 16]),
        "store": {
            "capacity_tokens": None if capacity is None else max(capacity, chunk_tokens),
            "lookup_s": rng.choice([0.0, 0.000_05, 0.004_003, 0.030_07]),
            "read_latency_s": rng.choice([0.0, 0.000_02, 0.001_003]),
            "write_latency_s": rng.choice([0.0, 0.000_02, 0.001_003]),
            "read_tokens_per_s": chunk_tokens * 1e9 / read_ns,
            "write_tokens_per_s": chunk_tokens * 1e9 / write_ns,
            "pages_at_once": rng.choice([1, 4, 128]),
            "failed_read_share": rng.choice([0.0, 0.0, 0.1, 0.4]),
            "failed_write_share": rng.choice([0.0, 0.0, 0.1, 0.4]),
            "seed": rng.randrange(100),
        },
    }
    if "kv_cache_groups" not in config and rng.random() < 0.5:
        # The size of a chunk is that of a model.
        tier["chunk_bytes"] = chunk_tokens * MODEL_BYTES
        tier["backpressure"] = _draw_pressure(rng, write_ns, tier["chunk_bytes"])
    return tier


def _draw_pressure(rng: random.Random, write_ns: int, chunk_bytes: int) -> Config:
    """Marks about as high as the time of a store."""
    usual_s = write_ns / 1e9 / chunk_bytes * (1 << 20)
    high_s = usual_s * rng.choice([0.5, 1.2, 2, 5])
    return {
        "policy": rng.choice(["throttle", "throttle", "drop"]),
        "high_water_s": high_s,
        "low_water_s": high_s * rng.choice([0.1, 0.5, 1]),
        "alpha": rng.choice([0.15, 0.5, 1]),
        "warmup_completions": rng.choice([1, 3, 10]),
        "decay_half_life_s": rng.choice([0.02, 2, 0]),
        "cooldown_s": rng.choice([0, 0.05, 1]),
        "failure_threshold": rng.choice([1, 3]),
    }
