"""Draws servers that keep KV in CPU memory."""

import random

from oracle.vllm.load import Config


def draw_offload(rng: random.Random, config: Config) -> Config:
    """The same server with little or much CPU memory, and slow or fast copies."""
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
    return config | {
        "offload": {
            "num_chunks": max(1, num_blocks // blocks_per_chunk),
            "eviction_policy": rng.choice(["lru", "arc"]),
            "blocks_per_chunk": blocks_per_chunk,
            "store_threshold": rng.choice([0, 0, 0, 1, 2, 3]),
            "offload_prompt_only": rng.random() < 0.5,
            # Odd numbers: hardly any copy ends just when a step does.
            "copy_ns_per_block": rng.choice([1_003, 50_021, 400_009, 3_000_017]),
            "sync_load_tokens": 0 if has_states else rng.choice([0, 0, 0, 40, 150, 10_000]),
        }
    }
