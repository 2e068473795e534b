"""The groups of layers of a case, as vLLM's own specs."""

from typing import Any

import torch
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheGroupSpec,
    KVCacheSpec,
    SlidingWindowSpec,
)

Config = dict[str, Any]

_INTERVAL = "prefix_cache_retention_interval"


def cache_groups(config: Config) -> dict[str, Any]:
    """The part of a `KVCacheConfig` that says what layers keep; one full group without groups."""
    given = config.get("kv_cache_groups", [{"kind": "full_attention"}])
    groups = [group for group in given for _ in range(group.get("count", 1))]
    specs = [_spec(config, group) for group in groups]
    parts: dict[str, Any] = {
        "kv_cache_groups": [KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)]
    }
    if _INTERVAL in config:
        parts[_INTERVAL] = config[_INTERVAL]
    return parts


def _spec(config: Config, group: Config) -> KVCacheSpec:
    sizes = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    sizes["block_size"] = config["block_size"]
    if group["kind"] == "sliding_window":
        return SlidingWindowSpec(sliding_window=group["sliding_window"], **sizes)
    if group["kind"] == "chunked_local_attention":
        return ChunkedLocalAttentionSpec(
            attention_chunk_size=group["attention_chunk_size"], **sizes
        )
    return FullAttentionSpec(**sizes)
