"""Groups of layers as vLLM's own specs."""

import math
from typing import Any

import torch
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVCacheTensor,
    MambaSpec,
    SlidingWindowSpec,
)

Config = dict[str, Any]

_EAGLE = "eagle", "eagle3", "mtp"
_INTERVAL = "prefix_cache_retention_interval"


def cache_groups(config: Config) -> dict[str, Any]:
    """The part of a `KVCacheConfig` that says what layers keep; one full group without groups."""
    given = config.get("kv_cache_groups", [{"kind": "full_attention"}])
    groups = [group for group in given for _ in range(group.get("count", 1))]
    specs = [_spec(config, group) for group in groups]
    parts: dict[str, Any] = {
        "kv_cache_groups": [KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)],
        "kv_cache_tensors": [],
    }
    if "offload" in config and _INTERVAL not in KVCacheConfig.__dataclass_fields__:
        # Versions before 0.33.0 count tensors to find the size of a block.
        size = specs[0].page_size_bytes * config["num_gpu_blocks"]
        parts["kv_cache_tensors"] = [KVCacheTensor(size=size, shared_by=["layer0"])]
    elif "kv_connector" in config.get("offload", {}):
        # So does SimpleCPUOffloadConnector.
        size = config["num_gpu_blocks"]
        tensor = KVCacheTensor(size=size, layers=["layer0"], layer_stride=size, block_stride=1)
        parts["kv_cache_tensors"] = [tensor]
    if config.get("speculation", {}).get("method") in _EAGLE:
        for group, says in zip(parts["kv_cache_groups"], groups, strict=True):
            # The drafter's layers are in it.
            is_only = "offload" in config and "kv_cache_groups" not in config
            group.is_eagle_group = is_only or says.get("has_drafter", False)
    if _INTERVAL in KVCacheConfig.__dataclass_fields__:
        parts[_INTERVAL] = config.get(_INTERVAL, 0)
    return parts


def _spec(config: Config, group: Config) -> KVCacheSpec:
    if group["kind"] == "mamba":
        return _states(config, group)
    sizes = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    sizes["block_size"] = config["block_size"]
    if group["kind"] == "sliding_window":
        return SlidingWindowSpec(sliding_window=group["sliding_window"], **sizes)
    if group["kind"] == "chunked_local_attention":
        return ChunkedLocalAttentionSpec(
            attention_chunk_size=group["attention_chunk_size"], **sizes
        )
    return FullAttentionSpec(**sizes)


def _states(config: Config, group: Config) -> MambaSpec:
    """With prefix caching a state has the place of a block, without it that of a whole request."""
    caches = config["enable_prefix_caching"]
    more: dict[str, Any] = {}
    if "prefill_checkpoint_alignment" in group:
        more = {
            "num_prefill_checkpoint_blocks": 1,
            "prefill_checkpoint_alignment": group["prefill_checkpoint_alignment"],
        }
    return MambaSpec(
        block_size=config["block_size"] if caches else config["max_model_len"],
        shapes=((1,),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align" if caches else "none",
        num_speculative_blocks=config.get("speculation", {}).get("num_speculative_tokens", 0),
        **more,
    )


def has_states(config: Config) -> bool:
    """Whether some layers keep states."""
    return any(group["kind"] == "mamba" for group in config.get("kv_cache_groups", ()))


def scheduler_block_size(config: Config) -> int:
    """A multiple of the block sizes of all groups."""
    block_size: int = config["block_size"]
    if has_states(config) and not config["enable_prefix_caching"]:
        return math.lcm(block_size, config["max_model_len"])
    return block_size
