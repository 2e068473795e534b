"""Gives the harness's server a pool of states beside its KV: models with state-space layers.

It needs SGLang's environment. The tree with its components, the pool of requests and states (small
tensors on the CPU) and the allocator of states are SGLang's own.
"""

from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from oracle.sglang.live import add_server_args

# Tokens between the states that the model's kernels can keep (`FLA_CHUNK_SIZE`).
_STATE_CHUNK = 64


def use_states(harness: ModuleType, config: dict[str, Any]) -> None:
    """Make `build_scheduler` of the harness build a server of a model with states.

    Keys of the configuration: `max_mamba_cache_size` (states), `mamba_radix_cache_strategy`, and
    `mamba_track_interval` (tokens).
    """
    import torch
    from sglang.srt.mem_cache import memory_pool, unified_radix_cache
    from sglang.srt.mem_cache.unified_cache.components import ComponentType
    from sglang.srt.runtime_context import get_server_args

    # Memory can be pinned only where there is a GPU.
    torch.Tensor.pin_memory = lambda self, *_: self
    tracks = config["mamba_radix_cache_strategy"] == "extra_buffer"
    real_cache, build = unified_radix_cache.UnifiedRadixCache, harness.build_scheduler
    names = ("mamba_radix_cache_strategy", "mamba_track_interval", "max_mamba_cache_size")
    add_server_args({name: config[name] for name in names})

    def cache(params: Any) -> Any:
        get_server_args()._mamba_cache_chunk_size = max(_STATE_CHUNK, config["page_size"])
        params.tree_components = (ComponentType.FULL, ComponentType.MAMBA)
        params.enable_mamba_extra_buffer = tracks
        return real_cache(params)

    def requests(*, size: int, **more: Any) -> Any:
        return memory_pool.HybridReqToTokenPool(
            size=size, mamba_size=config["max_mamba_cache_size"], mamba_spec_state_size=size,
            cache_params=_shapes(), mamba_layer_ids=[0], enable_mamba_extra_buffer=tracks,
            enable_overlap_schedule=config["enable_overlap"], **more,
        )  # fmt: skip

    def build_with_states(given: dict[str, Any]) -> Any:
        with (
            patch.object(memory_pool, "ReqToTokenPool", requests),
            patch.object(unified_radix_cache, "UnifiedRadixCache", cache),
        ):
            scheduler = build(given)
        scheduler.is_hybrid_ssm = True
        scheduler.model_config.hf_text_config = SimpleNamespace()
        return scheduler

    harness.build_scheduler = build_with_states


def _shapes() -> Any:
    """The smallest state: one layer with one head."""
    from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape

    shape = Mamba2StateShape.create(
        tp_world_size=1, intermediate_size=2, n_groups=1, num_heads=1, head_dim=2,
        state_size=2, conv_kernel=4,
    )  # fmt: skip
    return Mamba2CacheParams(shape=shape, layers=[0])


def state_oracle(base: type) -> type:
    """A driver that also writes what the pool of states holds."""

    class StateOracle(base):
        def __init__(self, config: dict[str, Any], workload: list[dict[str, Any]]) -> None:
            super().__init__(config, workload)
            if not config.get("prefill_delayer"):
                return
            full_usage = self.s.pool_stats_observer.get_pool_stats().get_max_pool_usage

            def usage() -> float:
                """Of the fuller pool, as in SGLang's `PoolStats`."""
                pool, tree = self.s.req_to_token_pool, self.s.tree_cache
                left = int(pool.mamba_allocator.available_size()) + int(tree.mamba_evictable_size())
                return max(full_usage(), (pool.mamba_pool.size - left) / pool.mamba_pool.size)

            stats = SimpleNamespace(get_max_pool_usage=usage)
            self.s.pool_stats_observer = SimpleNamespace(get_pool_stats=lambda: stats)

        def describe(self, batch: Any, t0: float, queue_before: int) -> Any:
            row, end = super().describe(batch, t0, queue_before)
            pool, tree = self.s.req_to_token_pool, self.s.tree_cache
            row["states_free"] = int(pool.mamba_allocator.available_size())
            row["states_evictable"] = int(tree.mamba_evictable_size())
            return row, end

        def idle(self) -> None:
            scheduler = self.s
            if scheduler.is_fully_idle():
                pool, tree = scheduler.req_to_token_pool, scheduler.tree_cache
                left = int(pool.mamba_allocator.available_size()) + int(tree.mamba_evictable_size())
                if left != pool.mamba_pool.size:
                    raise RuntimeError(f"leak at idle: {left} of {pool.mamba_pool.size} states")
            super().idle()

    return StateOracle
