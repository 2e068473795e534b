"""The keys `kv_offloading_size` and `kv_offloading` of a vLLM scheduler: KV in CPU memory."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self

from pydantic import Field, model_validator

from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.engine.server_config import DECODE
from sim.engine.store import StoreSettings
from sim.validation import KeysError, StrictModel
from sim.vllm.cache.single_type_manager import MAMBA, WINDOW
from sim.vllm.config import VllmConfig
from sim.vllm.offload.settings import EvictionPolicy, OffloadSettings, TierSettings
from sim.vllm.scheduler.step_limits import EAGLE_METHODS
from sim.vllm.section.groups import (
    DRAFTER,
    KVCacheGroup,
    block_bytes,
    has_drafter,
    refused_chunks,
)
from sim.vllm.section.speculation import SpeculativeConfig
from sim.vllm.section.tiers import SecondaryTierSection
from sim.vllm.version_rules import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.latency.shapes import ModelShape

_SIZE, _KEYS, _GROUPS = "kv_offloading_size", "kv_offloading", "kv_cache_groups"
_INTERVAL = "prefix_cache_retention_interval"
_BUDGETS = "sync_load_budget_bytes", "sync_load_budget_tokens"
_BYTES_PER_GIB = 1 << 30
# A chunk in CPU memory fills whole pages (`SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT`).
_ALIGNMENT = 4096
_BANDWIDTH_GB_S = 50.0


class KvOffloading(StrictModel):
    """What `kv_connector_extra_config` sets of vLLM's OffloadingConnector, and how fast copies are.

    docs/explanation/offloading.md explains the rules.
    """

    capacity_tokens: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """Size of CPU memory for KV, in place of `kv_offloading_size`. Each rank has as much. Unit:
    tokens."""
    eviction_policy: EvictionPolicy = "lru"
    """Which chunks leave CPU memory when it is full: those of the requests that used them least
    recently, or as Adaptive Replacement Cache has it."""
    blocks_per_chunk: int = Field(default=1, ge=1, le=4096)
    """Blocks that are stored and loaded together. Unit: blocks."""
    store_threshold: int = Field(default=0, ge=0, le=2**31 - 1)
    """How often a chunk must be offered before it is stored; before version 0.33.0: looked up.
    Below 2: it is stored at once. Unit: offers."""
    offload_prompt_only: bool | None = None
    """Chunks with output tokens are not stored. Without it: from version 0.33.0 on. Older versions
    do not have it, and store them."""
    sync_load_budget_bytes: Annotated[int, Field(ge=0, le=2**50)] | None = None
    """A step waits for loads of this much KV on each GPU, so that their requests run in it. Other
    requests wait for their loads without a step. Needs the scenario's `model`. 0 without it. Unit:
    bytes."""
    sync_load_budget_tokens: Annotated[int, Field(ge=0, le=2**40)] | None = None
    """The same in tokens. Unit: tokens."""
    secondary_tiers: list[SecondaryTierSection] | None = None
    """What lies below CPU memory: chunks are written to all of these tiers, and come back through
    CPU memory from the first one that has them. Needs the scenario's `store`, or one of each tier.
    Without it: nothing."""
    load_bandwidth_gb_s: Annotated[float, Field(ge=0.001, le=1_000_000)] | None = None
    """Speed of copies, in each direction, in bytes. Needs the scenario's `model`. 50, about that of
    a PCIe 5.0 x16 link, if neither this nor `load_tokens_per_s` is given. Unit: GB/s."""
    load_tokens_per_s: Annotated[float, Field(ge=1, le=10**12)] | None = None
    """The same speed in tokens. Unit: tokens/s."""

    @model_validator(mode="after")
    def _check_speed(self) -> Self:
        if None not in (self.load_bandwidth_gb_s, self.load_tokens_per_s):
            raise KeysError(
                "load_bandwidth_gb_s and load_tokens_per_s set the same speed: give one of them,"
                " not both",
                "load_bandwidth_gb_s",
                "load_tokens_per_s",
            )
        if None not in (self.sync_load_budget_bytes, self.sync_load_budget_tokens):
            raise KeysError(f"{' and '.join(_BUDGETS)} set the same: give one of them", *_BUDGETS)
        if sum(tier.store is None for tier in self.tiers) > 1:
            reason = "of several tiers, all but one need a store of their own"
            raise KeysError(reason, "secondary_tiers")
        if self.tiers and self.store_threshold >= 2:
            raise KeysError(
                f"vLLM refuses store_threshold {self.store_threshold} with secondary_tiers"
                " (get_manager of v1/kv_offload/tiering/spec.py)",
                "store_threshold",
                "secondary_tiers",
            )
        return self

    @property
    def tiers(self) -> list[SecondaryTierSection]:
        return self.secondary_tiers or []


class OffloadKeys(Protocol):
    """The keys of a scheduler that are looked at here."""

    @property
    def version(self) -> str: ...
    @property
    def block_size(self) -> int: ...
    @property
    def kv_offloading_size(self) -> float | None: ...
    @property
    def kv_offloading(self) -> KvOffloading | None: ...
    @property
    def kv_cache_groups(self) -> list[KVCacheGroup] | Literal["model"] | None: ...
    @property
    def prefix_cache_retention_interval(self) -> int | None: ...
    @property
    def enable_prefix_caching(self) -> bool: ...
    @property
    def speculative_config(self) -> SpeculativeConfig | None: ...
    @property
    def schedules_ahead(self) -> bool: ...
    @property
    def kv_load_failure_policy(self) -> str: ...


def check_offloading(section: OffloadKeys) -> None:
    """Refuse what does not go with KV in CPU memory.

    Raises KeysError: with the keys.
    """
    keys, size = section.kv_offloading, section.kv_offloading_size
    if keys is None and size is None:
        return
    given = _SIZE if size is not None else _KEYS
    capacity = None if keys is None else keys.capacity_tokens
    if (size is None) == (capacity is None):
        which = "set the same size" if size is not None else "are both missing"
        raise KeysError(
            f"kv_offloading_size and kv_offloading.capacity_tokens {which}: give one of them",
            given,
            _KEYS,
        )
    rules = VERSIONS[section.version]
    if not rules.offloads:
        reason = f"{given} of vLLM {section.version} is not simulated"
        raise KeysError(reason, given, "version")
    if not rules.offloads_parts:
        _check_old(section, given)
    _check_groups(section, given)


def _check_old(section: OffloadKeys, given: str) -> None:
    """Refuse what OffloadingConnector of version 0.19.0 does not have."""
    if section.kv_cache_groups is not None:
        raise KeysError(
            f"vLLM {section.version} turns groups of layers off with a KV connector"
            " (disable_hybrid_kv_cache_manager, config/vllm.py)",
            given,
            _GROUPS,
            "version",
        )
    for key in ("offload_prompt_only", *_BUDGETS, "secondary_tiers"):
        if getattr(section.kv_offloading, key, None) is not None:
            raise KeysError(f"vLLM {section.version} has no {_KEYS}.{key}", _KEYS, "version")


def _check_groups(section: OffloadKeys, given: str) -> None:
    """Refuse groups of layers with which vLLM does not start, or whose drafter is not known."""
    groups, drafts = section.kv_cache_groups, section.speculative_config
    if groups is None:
        return
    if drafts is not None and drafts.method in EAGLE_METHODS:
        _check_drafter(section, given, drafts.method)
    kinds = [WINDOW] if groups == "model" else [group.kind for group in groups]
    if MAMBA in kinds and not section.enable_prefix_caching:
        raise KeysError(
            f"{given} with kind {MAMBA} needs enable_prefix_caching (build_offloading_config of"
            " offloading/config.py)",
            given,
            _GROUPS,
            "enable_prefix_caching",
        )
    keys = section.kv_offloading
    if keys is not None and MAMBA in kinds:
        for key in _BUDGETS:
            if getattr(keys, key):
                raise KeysError(
                    f"vLLM fails with {key} and kind {MAMBA}: allocate_slots takes a block for the"
                    " state that is loaded and one for the chunk's, and has counted one"
                    " (get_num_blocks_to_allocate of MambaManager)",
                    _KEYS,
                    _GROUPS,
                )
    chunk_tokens = section.block_size * (1 if keys is None else keys.blocks_per_chunk)
    interval = section.prefix_cache_retention_interval
    if interval and interval % chunk_tokens:
        raise KeysError(
            f"{_INTERVAL} {interval} is no multiple of a chunk's {chunk_tokens} tokens",
            _INTERVAL,
            given,
        )


def _check_drafter(section: OffloadKeys, given: str, method: str) -> None:
    """Refuse groups of which none says that it has the drafter's layers, or one that must not."""
    if not has_drafter(section.kv_cache_groups):
        reason = f"{given} with drafts of method {method} needs a list of groups, and {DRAFTER} in"
        raise KeysError(f"{reason} that of the drafter's layers", given, _GROUPS)
    refused = refused_chunks(_groups(section), method) if section.enable_prefix_caching else None
    if refused is not None:
        raise KeysError(refused, _GROUPS, "speculative_config")


def check_offloading_in_role(section: OffloadKeys, role: str) -> None:
    """Refuse what is not simulated with KV in CPU memory on servers of a role.

    Raises InputError: with the key.
    """
    keys, policy = section.kv_offloading, section.kv_load_failure_policy
    if role != DECODE or (section.kv_offloading_size is None and keys is None):
        return
    if policy != "fail" and not VERSIONS[section.version].offloads_parts:
        where = f"is not simulated with {_KEYS} on servers of role {role}"
        reason = f"{policy} of vLLM {section.version} {where}"
        raise InputError(reason, key=("scheduler", "kv_load_failure_policy"))


def obstacle_to_copies(section: OffloadKeys) -> tuple[str, str] | None:
    """The key with which the real runner keeps no KV in CPU memory, and why; None: it does."""
    keys = section.kv_offloading
    if section.kv_offloading_size is None and keys is None:
        return None
    if section.schedules_ahead:
        return "async_scheduling", "the real runner keeps KV in CPU memory only without it"
    if section.speculative_config is not None:
        reason = "the real runner keeps KV in CPU memory only without drafts"
        return "speculative_config", reason
    if keys is not None and keys.tiers:
        return _KEYS, "the real runner keeps no KV below CPU memory"
    return None


def config_with_store(config: VllmConfig, store: StoreSettings) -> VllmConfig:
    """The settings, with this store for the tier below CPU memory that has none of its own."""
    offload = config.offload
    if offload is None:
        return config
    tiers = [replace(tier, store=tier.store or store) for tier in offload.tiers]
    return replace(config, offload=replace(offload, tiers=tuple(tiers)))


def offload_on_stages(section: OffloadKeys, config: VllmConfig, num_stages: int) -> VllmConfig:
    """The settings of a pipeline, in which each stage copies the KV of its own layers."""
    offload, keys = config.offload, section.kv_offloading
    if offload is None or (keys is not None and keys.load_tokens_per_s is not None):
        return config
    ns_per_token = offload.copy_ns_per_token / num_stages
    return replace(config, offload=replace(offload, copy_ns_per_token=ns_per_token))


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
        chunk_bytes = bytes_per_token(section, model, tp) * chunk_tokens
        if rules.shares_latents:
            chunk_bytes = -(-chunk_bytes // _ALIGNMENT) * _ALIGNMENT
    if size is not None:
        num_chunks = int(size * _BYTES_PER_GIB) // chunk_bytes
    if not num_chunks:
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
        num_groups = sum(group.count for group in _groups(section)) or 1
        sync_tokens = sync_bytes // (_bytes_on_gpu(section, model, tp) * num_groups)
    return OffloadSettings(
        num_chunks=num_chunks,
        blocks_per_chunk=keys.blocks_per_chunk,
        eviction_policy=keys.eviction_policy,
        store_threshold=keys.store_threshold,
        offload_prompt_only=rules.offloads_parts if prompt_only is None else prompt_only,
        copy_ns_per_token=ns_per_token,
        sync_load_tokens=sync_tokens,
        tiers=_tiers(section, keys, chunk_bytes, model, tp),
    )


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


def _groups(section: OffloadKeys) -> list[KVCacheGroup]:
    groups = section.kv_cache_groups
    return groups if isinstance(groups, list) else []


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
