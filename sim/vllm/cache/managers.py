"""Which manager has the blocks of a group of layers."""

from typing import Any

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.full_attention import FullAttentionManager, HashedFullAttentionManager
from sim.vllm.cache.mamba import MambaManager, UncachedMambaManager
from sim.vllm.cache.single_type_manager import (
    CHUNKED,
    MAMBA,
    WINDOW,
    CacheRules,
    KVCacheSpec,
    SingleTypeManager,
)
from sim.vllm.cache.sliding_window import ChunkedLocalAttentionManager, SlidingWindowManager


def manager_of(
    spec: KVCacheSpec, number: int, pool: BlockPool, block_size: int, rules: CacheRules
) -> SingleTypeManager[Any]:
    """The manager of a group of layers (`get_manager_for_kv_cache_spec`)."""
    if spec.kind == MAMBA and not rules.enable_caching:
        return UncachedMambaManager(spec, number, pool, block_size, rules)
    if spec.kind == MAMBA:
        return MambaManager(spec, number, pool, block_size, rules)
    if spec.kind == WINDOW:
        return SlidingWindowManager(spec, number, pool, block_size, rules)
    if spec.kind == CHUNKED:
        return ChunkedLocalAttentionManager(spec, number, pool, block_size, rules)
    if rules.hashes_at_once:
        return HashedFullAttentionManager(spec, number, pool, block_size, rules)
    return FullAttentionManager(spec, number, pool, block_size, rules)
