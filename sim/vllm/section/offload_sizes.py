"""How many chunks CPU memory has room for, and how long copies take, from the scenario's keys."""

from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.vllm.offload.settings import SIMPLE, OffloadSettings, TierSettings
from sim.vllm.section.groups import block_bytes
from sim.vllm.section.offload import KvOffloading, OffloadKeys, is_simple, listed_groups
from sim.vllm.version_rules import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.latency.shapes import ModelShape

_SIZE, _KEYS = "kv_offloading_size", "kv_offloading"
_BYTES_PER_GIB = 1 << 30
# A chunk in CPU memory fills whole pages (`SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT`).
_ALIGNMENT = 4096
_BANDWIDTH_GB_S = 50.0
# Of a second pool. An array has a place for each.
_MAX_BLOCKS = 1 << 26


def offload_settings(
    section: OffloadKeys, find_model: "Callable[[], ModelShape | None]", tp: int
) -> OffloadSettings | None:
    """What the scheduler gets; None: no KV is kept in CPU memory.

    Args:
        section: the keys.
        find_model: reads the model.
        tp: GPUs that share the model. Each copies its part over its own link.

    Raises InputError: bytes are given, but no model; or CPU memory has no room for a chunk.
    """
    size = section.kv_offloading_size
    if size is None and section.kv_offloading is None:
        return None
    keys = section.kv_offloading or KvOffloading()
    rules, prompt_only = VERSIONS[section.version], keys.offload_prompt_only
    speed = keys.load_tokens_per_s
    sync_bytes = keys.sync_load_budget_bytes
    has_pressure = any(tier.backpressure is not None for tier in keys.tiers)
    needs_model = size is not None or speed is None or sync_bytes is not None or has_pressure
    may_need_model = any(tier.store is not None for tier in keys.tiers)
    model = find_model() if needs_model or may_need_model else None
    if model is None and needs_model:
        key = _SIZE if size is not None else _KEYS
        raise InputError("needs a model whose shape is known", key=("scheduler", key))
    chunk_tokens = keys.blocks_per_chunk * section.block_size
    num_chunks = (keys.capacity_tokens or 0) // chunk_tokens
    chunk_bytes = 0
    if model is not None and (size is not None or has_pressure):
        chunk_bytes = _chunk_bytes(section, model, tp, keys)
    if size is not None:
        num_chunks = int(size * _BYTES_PER_GIB) // chunk_bytes
    if is_simple(section):
        # vLLM never uses the first block of a pool.
        num_chunks = max(num_chunks, 1) - 1
        if num_chunks > _MAX_BLOCKS:
            key = _SIZE if size is not None else _KEYS
            reason = f"more than {_MAX_BLOCKS} blocks are not simulated with {SIMPLE}"
            raise InputError(reason, key=("scheduler", key))
    elif not num_chunks:
        key = _SIZE if size is not None else _KEYS
        reason = f"has no room for a chunk of {chunk_tokens} tokens"
        raise InputError(reason, key=("scheduler", key))
    if model is not None and speed is None:
        # 1 GB/s is 1 byte per ns.
        bandwidth = keys.load_bandwidth_gb_s or _BANDWIDTH_GB_S
        ns_per_token = _bytes_on_gpu(section, model, tp) / bandwidth
    else:
        ns_per_token = NS_PER_S / (speed or 1.0)
    sync_tokens = keys.sync_load_budget_tokens or 0
    if sync_bytes is not None and model is not None:
        num_groups = sum(group.count for group in listed_groups(section)) or 1
        sync_tokens = sync_bytes // (_bytes_on_gpu(section, model, tp) * num_groups)
    return OffloadSettings(
        connector=keys.kv_connector,
        lazy_offload=keys.lazy_offload,
        num_chunks=num_chunks,
        blocks_per_chunk=keys.blocks_per_chunk,
        eviction_policy=keys.eviction_policy,
        store_threshold=keys.store_threshold,
        offload_prompt_only=rules.offloads_parts if prompt_only is None else prompt_only,
        copy_ns_per_token=ns_per_token,
        sync_load_tokens=sync_tokens,
        tiers=_tiers(section, keys, chunk_bytes, model, tp),
    )


def _chunk_bytes(section: OffloadKeys, model: "ModelShape", tp: int, keys: KvOffloading) -> int:
    """Bytes of a chunk in CPU memory, the parts of all GPUs."""
    chunk_tokens = keys.blocks_per_chunk * section.block_size
    if is_simple(section):
        # Each GPU has its part of the memory (`SimpleCPUOffloadConnector`, `_derive_cpu_config`).
        return _bytes_on_gpu(section, model, tp) * chunk_tokens * tp
    chunk_bytes = bytes_per_token(section, model, tp) * chunk_tokens
    if VERSIONS[section.version].shares_latents:
        chunk_bytes = -(-chunk_bytes // _ALIGNMENT) * _ALIGNMENT
    return chunk_bytes


def _tiers(
    section: OffloadKeys, keys: KvOffloading, chunk_bytes: int, model: "ModelShape | None", tp: int
) -> tuple[TierSettings, ...]:
    chunk_tokens = keys.blocks_per_chunk * section.block_size
    token_bytes = None if model is None else bytes_per_token(section, model, tp)
    where = "scheduler", _KEYS, "secondary_tiers"
    return tuple(
        tier.settings(chunk_bytes, chunk_tokens, token_bytes, (*where, place))
        for place, tier in enumerate(keys.tiers)
    )


def bytes_per_token(section: OffloadKeys, model: "ModelShape", tp: int) -> int:
    """KV of a token in CPU memory: the parts of all GPUs, but latent attention's only once.

    Before version 0.33.0, a latent has as many copies there as on the GPUs.
    """
    on_gpu = _bytes_on_gpu(section, model, tp)
    is_shared = on_gpu == _bytes_on_gpu(section, model, 1)
    return on_gpu if is_shared and VERSIONS[section.version].shares_latents else on_gpu * tp


def _bytes_on_gpu(section: OffloadKeys, model: "ModelShape", tp: int) -> int:
    """KV of a token on each GPU in all layers, or in those of one group.

    Raises:
        InputError: what a block holds cannot be derived.
    """
    if section.kv_cache_groups is None:
        return model.kv_bytes_on_gpu(tp)
    try:
        return block_bytes(model, tp, section.block_size) // section.block_size
    except InputError:
        reason = f"needs capacity_tokens and load_tokens_per_s with the groups of {model.name}"
        raise InputError(reason, key=("scheduler", _KEYS)) from None
