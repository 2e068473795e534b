"""Makes SGLang's own pools and tree for a case: pages, windows, states, and host memory below.

Tensors are the smallest that SGLang's pools make, on the CPU; without windows, states and host
memory there are none. `virtual_device` stands in for streams, events and the copies themselves.
"""

from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape
from sglang.srt.disaggregation.decode import DecodeReqToTokenPool, HybridMambaDecodeReqToTokenPool
from sglang.srt.managers import cache_controller
from sglang.srt.mem_cache import l2_transfer
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.kv_cache_builder import resolve_decode_retraction_backup
from sglang.srt.mem_cache.memory_pool import (
    HybridLinearKVPool,
    HybridReqToTokenPool,
    MHATokenToKVPool,
    ReqToTokenPool,
)
from sglang.srt.mem_cache.pool_host import common
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import get_server_args
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from sim.installed.inside.sglang.quiet import Quiet
from sim.installed.inside.sglang.settings import Config, extra_slots, has_host_pool
from sim.installed.inside.sglang.virtual_device import VirtualDevice

# Layers of the model whose KV is copied; a load and its step overlap by layer.
NUM_LAYERS = 4
# With windows, every other layer has one; with states, the second layer has states in place of KV.
_FULL_LAYERS, _WINDOW_LAYERS, _STATE_LAYER = [0, 2], [1, 3], 1
# Tokens between the states that the model's kernels can keep (`FLA_CHUNK_SIZE`).
_STATE_CHUNK = 64
# Room of a request's row behind the longest request: for the next step, for drafts.
_MORE_TOKENS, _MORE_FOR_DRAFTS = 64, 512


def pool_tokens(config: Config) -> int:
    """The KV pool, in whole pages."""
    return int(config["kv_pool_tokens"] // config["page_size"] * config["page_size"])


def build_memory(config: Config) -> tuple[Any, Any, Any, VirtualDevice]:
    """The pool of requests' rows, the allocator of KV, the tree, and what copies."""
    device = VirtualDevice(config.get("copy_s_per_token", 0.0))
    rows = _request_pool(config)
    allocator = _allocator(config, rows)
    tree = _tree(config, rows, allocator, device)
    return rows, allocator, tree, device


def tracks_states(config: Config) -> bool:
    """Whether running requests keep states beside their own, for the cache if there is one."""
    has_buffer = config.get("mamba_radix_cache_strategy") == "extra_buffer"
    return has_buffer and not config["disable_radix_cache"]


def _request_pool(config: Config) -> Any:
    more = _MORE_TOKENS + (_MORE_FOR_DRAFTS if config["speculation"] else 0)
    size = config["max_running_requests"]
    settings: dict[str, Any] = {
        "size": size,
        "max_context_len": min(config["context_len"], pool_tokens(config)) + more,
        "device": "cpu",
        "enable_memory_saver": False,
    }
    decodes = config["disaggregation_mode"] == "decode"
    if decodes:
        settings["pre_alloc_size"] = extra_slots(config)
    if not config["max_mamba_cache_size"]:
        return (DecodeReqToTokenPool if decodes else ReqToTokenPool)(**settings)
    # Memory can be pinned only where there is a GPU.
    setattr(torch.Tensor, "pin_memory", lambda self, *_: self)  # noqa: B010 - for type checkers
    drafts = config["speculation"]
    is_prefill = config["disaggregation_mode"] == "prefill"
    settings |= {
        "mamba_size": config["max_mamba_cache_size"],
        "cache_params": _smallest_state(),
        "mamba_layer_ids": [_STATE_LAYER],
        "enable_mamba_extra_buffer": tracks_states(config),
        "enable_overlap_schedule": config["enable_overlap"],
        "speculative_num_draft_tokens": drafts["num_draft_tokens"]
        if drafts and not is_prefill
        else None,
        "speculative_eagle_topk": 1 if drafts else None,
    }
    if decodes:
        return HybridMambaDecodeReqToTokenPool(**settings)
    return HybridReqToTokenPool(mamba_spec_state_size=size, **settings)


def _smallest_state() -> Any:
    shape = Mamba2StateShape.create(
        tp_world_size=1, intermediate_size=2, n_groups=1, num_heads=1, head_dim=2,
        state_size=2, conv_kernel=4,
    )  # fmt: skip
    return Mamba2CacheParams(shape=shape, layers=[_STATE_LAYER])


def _allocator(config: Config, rows: Any) -> Any:
    size, page, dtype = pool_tokens(config), config["page_size"], torch.float16
    if config["sliding_window"]:
        window_tokens = config.get("window_pool_tokens")
        if window_tokens is None:
            window_tokens = int(size * config["swa_full_tokens_ratio"]) // page * page
        layers = [
            layer
            for layer in _WINDOW_LAYERS
            if layer != _STATE_LAYER or not config["max_mamba_cache_size"]
        ]
        windows = SWAKVPool(size, window_tokens, page, dtype, 1, 1, layers, _FULL_LAYERS, "cpu")
        return SWATokenToKVPoolAllocator(
            size, window_tokens, page, dtype, "cpu", windows, need_sort=False
        )
    pool: Any
    if config["max_mamba_cache_size"]:
        layers = [layer for layer in range(NUM_LAYERS) if layer != _STATE_LAYER]
        pool = HybridLinearKVPool(
            size, dtype, page, 1, 1, layers, "cpu", mamba_pool=rows.mamba_pool
        )
    elif config["hicache_write_policy"] or has_host_pool(config):
        pool = MHATokenToKVPool(size, page, dtype, 1, 1, NUM_LAYERS, "cpu", False)
    else:
        pool = Quiet(device="cpu")
    if page == 1:
        return TokenToKVPoolAllocator(size, dtype, "cpu", pool, need_sort=False)
    return PagedTokenToKVPoolAllocator(size, page, dtype, "cpu", pool, need_sort=False)


def _nothing(*_: Any, **__: Any) -> None: ...


def _tree(config: Config, rows: Any, allocator: Any, device: VirtualDevice) -> Any:
    components = [ComponentType.FULL]
    if config["sliding_window"]:
        components.append(ComponentType.SWA)
    if config["max_mamba_cache_size"]:
        components.append(ComponentType.MAMBA)
        get_server_args()._mamba_cache_chunk_size = max(_STATE_CHUNK, config["page_size"])
    drafts = config["speculation"]
    params = CacheInitParams(
        disable=config["disable_radix_cache"],
        req_to_token_pool=rows,
        token_to_kv_pool_allocator=allocator,
        page_size=config["page_size"],
        eviction_policy=config["eviction_policy"],
        eviction_policy_config=config["eviction_policy_config"],
        chunked_prefill_size=config["chunked_prefill_size"],
        is_eagle=bool(drafts) and SpeculativeAlgorithm.from_string(drafts["algorithm"]).is_eagle(),
        sliding_window_size=config["sliding_window"],
        enable_mamba_extra_buffer=tracks_states(config),
        tree_components=tuple(components),
    )
    keeps_retracted = has_host_pool(config)
    if keeps_retracted:
        # This notes how large the host pool is, which `init_hicache` makes.
        resolve_decode_retraction_backup(
            tp_worker=SimpleNamespace(
                get_memory_pool=lambda: (rows, allocator), is_hybrid_swa=False
            )
        )
    tree = UnifiedRadixCache(params)
    if config["hicache_write_policy"] or keeps_retracted:
        use_device(device, config)
        tree.init_hicache(get_server_args(), params)
        controller = tree.cache_controller
        controller.load_fence_stream = controller.write_fence_stream = device.forward
    return tree


def use_device(device: VirtualDevice, config: Config) -> None:
    """Let copies take virtual time, that of a token's or a state's KV spread over the layers."""
    l2_transfer.device_module = cache_controller.device_module = device
    l2_transfer._timing_events_supported = lambda: False
    common._cuda_host_register = _nothing

    def let_copies_take_time(pool: Any, tokens_per_layer: float) -> None:
        def back_up(host_pool: Any, _: Any, host: Any, *__: Any, **___: Any) -> None:
            num_layers = host_pool.layer_num if pool is MHATokenToKVPoolHost else 1
            device.copy(len(host) * tokens_per_layer * num_layers)

        def load(_: Any, __: Any, host: Any, *___: Any, **____: Any) -> None:
            device.copy(len(host) * tokens_per_layer)

        pool.backup_from_device_all_layer, pool.load_to_device_per_layer = back_up, load

    let_copies_take_time(MHATokenToKVPoolHost, 1 / NUM_LAYERS)
    let_copies_take_time(MambaPoolHost, config.get("state_copy_tokens", 0))
