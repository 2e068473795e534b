"""The keys `kv_offloading_size` and `kv_offloading` of a vLLM scheduler: KV in CPU memory."""

from dataclasses import replace
from typing import Annotated, Literal, Protocol, Self

from pydantic import Field, model_validator

from sim.core.errors import InputError
from sim.engine.server_config import BOTH, DECODE
from sim.engine.store import StoreSettings
from sim.validation import KeysError, StrictModel
from sim.vllm.cache.single_type_manager import FULL, MAMBA, WINDOW
from sim.vllm.config import VllmConfig
from sim.vllm.offload.settings import (
    SIMPLE,
    EvictionPolicy,
    OffloadConnectorName,
)
from sim.vllm.scheduler.step_limits import EAGLE_METHODS
from sim.vllm.section.groups import (
    DRAFTER,
    KVCacheGroup,
    has_drafter,
    refused_chunks,
)
from sim.vllm.section.speculation import SpeculativeConfig
from sim.vllm.section.tiers import SecondaryTierSection
from sim.vllm.version_rules import VERSIONS

_SIZE, _KEYS, _GROUPS = "kv_offloading_size", "kv_offloading", "kv_cache_groups"
_INTERVAL = "prefix_cache_retention_interval"
_BUDGETS = "sync_load_budget_bytes", "sync_load_budget_tokens"
# What only OffloadingConnector has.
_OF_CHUNKS = (
    "eviction_policy", "blocks_per_chunk", "store_threshold", "offload_prompt_only", *_BUDGETS,
    "secondary_tiers",
)  # fmt: skip


class KvOffloading(StrictModel):
    """What `kv_connector_extra_config` sets of vLLM's connector, and how fast copies are.

    docs/explanation/offloading.md explains the rules.
    """

    kv_connector: OffloadConnectorName = "OffloadingConnector"
    """Which of vLLM's two connectors for CPU memory. `SimpleCPUOffloadConnector` has of the keys
    below only the size, `lazy_offload` and the speed."""
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
    lazy_offload: bool = False
    """With `SimpleCPUOffloadConnector`: blocks are stored when they are about to leave the GPU.
    Without it: as soon as they are computed."""
    load_bandwidth_gb_s: Annotated[float, Field(ge=0.001, le=1_000_000)] | None = None
    """Speed of copies, in each direction, in bytes. Needs the scenario's `model`. 50, about that of
    a PCIe 5.0 x16 link, if neither this nor `load_tokens_per_s` is given. Unit: GB/s."""
    load_tokens_per_s: Annotated[float, Field(ge=1, le=10**12)] | None = None
    """The same speed in tokens. Unit: tokens/s."""

    @model_validator(mode="after")
    def _check_connector(self) -> Self:
        is_for_simple = self.kv_connector == SIMPLE
        if self.lazy_offload and not is_for_simple:
            reason = f"{self.kv_connector} has no lazy_offload: set kv_connector to {SIMPLE}"
            raise KeysError(reason, "lazy_offload")
        for key in _OF_CHUNKS if is_for_simple else ():
            if key in self.model_fields_set:
                raise KeysError(f"{SIMPLE} has no {key}", key, "kv_connector")
        return self

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
        if is_simple(section):
            reason = f"{SIMPLE} of vLLM {section.version} is not simulated"
            raise KeysError(reason, _KEYS, "version")
        _check_old(section, given)
    if is_simple(section):
        _check_simple_groups(section)
    _check_groups(section, given)


def listed_groups(section: OffloadKeys) -> list[KVCacheGroup]:
    """The groups of layers that are in a list; none if the model's are taken, or there are none."""
    groups = section.kv_cache_groups
    return groups if isinstance(groups, list) else []


def is_simple(section: OffloadKeys) -> bool:
    """Whether the server has `SimpleCPUOffloadConnector`."""
    return section.kv_offloading is not None and section.kv_offloading.kv_connector == SIMPLE


def _check_simple_groups(section: OffloadKeys) -> None:
    """Refuse groups with which vLLM does not start: some layers must have full attention."""
    groups = section.kv_cache_groups
    if not isinstance(groups, list) or not section.enable_prefix_caching:
        return
    if all(group.kind != FULL for group in groups):
        raise KeysError(
            f"{SIMPLE} needs a group of kind {FULL} (SimpleCPUOffloadScheduler of"
            " v1/simple_kv_offload/manager.py)",
            _KEYS,
            _GROUPS,
        )


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
        if is_simple(section):
            reason = f"{SIMPLE} with drafts of method {drafts.method} is not simulated"
            raise KeysError(f"{reason} with {_GROUPS}", _KEYS, _GROUPS, "speculative_config")
        _check_drafter(section, given, drafts.method)
    kinds = [WINDOW] if groups == "model" else [group.kind for group in groups]
    if is_simple(section):
        return
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
    refused = (
        refused_chunks(listed_groups(section), method) if section.enable_prefix_caching else None
    )
    if refused is not None:
        raise KeysError(refused, _GROUPS, "speculative_config")


def check_offloading_in_role(section: OffloadKeys, role: str) -> None:
    """Refuse what is not simulated with KV in CPU memory on servers of a role.

    Raises InputError: with the key.
    """
    keys, policy = section.kv_offloading, section.kv_load_failure_policy
    if role == BOTH or (section.kv_offloading_size is None and keys is None):
        return
    if is_simple(section):
        reason = f"{SIMPLE} is not simulated on servers of role {role}"
        raise InputError(reason, key=("scheduler", _KEYS, "kv_connector"))
    if role == DECODE and policy != "fail" and not VERSIONS[section.version].offloads_parts:
        where = f"is not simulated with {_KEYS} on servers of role {role}"
        reason = f"{policy} of vLLM {section.version} {where}"
        raise InputError(reason, key=("scheduler", "kv_load_failure_policy"))


def check_offloading_on_ranks(section: OffloadKeys) -> None:
    """Refuse what is not simulated with KV in CPU memory on ranks that step together.

    Raises InputError: with the key.
    """
    if section.kv_offloading is not None and section.kv_offloading.lazy_offload:
        reason = "is not simulated with latency.dp above 1"
        raise InputError(reason, key=("scheduler", _KEYS, "lazy_offload"))


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
    if is_simple(section):
        return _KEYS, f"the real runner has no {SIMPLE}"
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
