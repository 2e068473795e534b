"""Gives the harness's server two pools of KV, one of them for layers with a sliding window.

It needs SGLang's environment. The allocator, the tree and its components are SGLang's own.
"""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch


def use_window(harness: ModuleType, config: dict[str, Any]) -> None:
    """Make `build_scheduler` of the harness build the caches of a model with sliding windows.

    Keys of the configuration: `sliding_window` (tokens), `swa_full_tokens_ratio`, and
    `swa_eviction_interval` (tokens).
    """
    from sglang.srt.environ import envs
    from sglang.srt.mem_cache import unified_radix_cache
    from sglang.srt.mem_cache.allocator import paged, token
    from sglang.srt.mem_cache.unified_cache.components import ComponentType

    window = config["sliding_window"]
    envs.SGLANG_SWA_EVICTION_INTERVAL.set(config.get("swa_eviction_interval", 128))
    real_cache, build = unified_radix_cache.UnifiedRadixCache, harness.build_scheduler

    def cache(params: Any) -> Any:
        params.tree_components = (ComponentType.FULL, ComponentType.SWA)
        params.sliding_window_size = window
        return real_cache(params)

    def build_with_window(settings: dict[str, Any]) -> Any:
        two_pools = _allocator(config)
        with (
            patch.object(token, "TokenToKVPoolAllocator", two_pools),
            patch.object(paged, "PagedTokenToKVPoolAllocator", two_pools),
            patch.object(unified_radix_cache, "UnifiedRadixCache", cache),
        ):
            scheduler = build(settings)
        scheduler.is_hybrid_swa = True
        scheduler.sliding_window_size = window
        return scheduler

    harness.build_scheduler = build_with_window


def _allocator(config: dict[str, Any]) -> Callable[..., Any]:
    """What makes SGLang's allocator of both pools, in place of the harness's allocator."""
    import torch
    from sglang.srt.mem_cache.allocator import swa

    page = config["page_size"]
    pool_tokens = config["kv_pool_tokens"] // page * page
    window_tokens = int(pool_tokens * config["swa_full_tokens_ratio"]) // page * page
    # Made now: it must see SGLang's own allocators of single pools.
    allocator, pool = swa.SWATokenToKVPoolAllocator, _pool_without_tensors()

    def both(size: int, *_: Any, **__: Any) -> Any:
        return allocator(size, window_tokens, page, torch.float16, "cpu", pool, need_sort=False)

    return both


def _pool_without_tensors() -> Any:
    """SGLang's pool of a model with windows, with the map between both pools and no KV."""
    from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool

    class Pool(BaseSWAKVPool):
        def __init__(self) -> None:
            self.device = "cpu"

        def register_mapping(self, full_to_swa_index_mapping: Any) -> None:
            self.full_to_swa_index_mapping = full_to_swa_index_mapping

        def translate_loc_from_full_to_swa(self, kv_indices: Any) -> Any:
            return self.full_to_swa_index_mapping[kv_indices]

        def get_state_buf_infos(self) -> Any: ...
        def get_key_buffer(self, layer_id: int) -> Any: ...
        def get_value_buffer(self, layer_id: int) -> Any: ...
        def get_kv_buffer(self, layer_id: int) -> Any: ...
        def set_kv_buffer(self, *args: Any, **kwargs: Any) -> Any: ...

    return Pool()


def window_oracle(base: type) -> type:
    """A driver that also writes what both pools hold."""

    class WindowOracle(base):
        def __init__(self, config: dict[str, Any], workload: list[dict[str, Any]]) -> None:
            super().__init__(config, workload)
            stats = SimpleNamespace(get_max_pool_usage=self.usage)
            self.s.pool_stats_observer = SimpleNamespace(get_pool_stats=lambda: stats)

        def usage(self) -> float:
            """Of the fuller pool, as in SGLang's `PoolStats`."""
            pool, tree = self.s.token_to_kv_pool_allocator, self.s.tree_cache
            full = int(pool.full_available_size()) + int(tree.full_evictable_size())
            window = int(pool.swa_available_size()) + int(tree.swa_evictable_size())
            return max(1 - full / pool.size_full, 1 - window / pool.size_swa)

        def describe(self, batch: Any, t0: float, queue_before: int) -> Any:
            row, end = super().describe(batch, t0, queue_before)
            pool, tree = self.s.token_to_kv_pool_allocator, self.s.tree_cache
            row["free"] = int(pool.full_available_size())
            row["used"] = self.s.max_total_num_tokens - row["free"] - row["evictable"]
            row["window_free"] = int(pool.swa_available_size())
            row["window_evictable"] = int(tree.swa_evictable_size())
            return row, end

        def idle(self) -> None:
            """The harness's check, of both pools; it takes the smaller pool for the only one."""
            scheduler = self.s
            pool, tree = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache
            if scheduler.is_fully_idle():
                full = int(pool.full_available_size()) + int(tree.full_evictable_size())
                window = int(pool.swa_available_size()) + int(tree.swa_evictable_size())
                if full != pool.size_full or window != pool.size_swa:
                    raise RuntimeError(f"leak at idle: {full} and {window} tokens")
            total, available = scheduler.max_total_num_tokens, pool.available_size
            scheduler.max_total_num_tokens = int(available()) + int(tree.evictable_size())
            super().idle()
            scheduler.max_total_num_tokens = total

    return WindowOracle
