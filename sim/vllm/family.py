"""Family `vllm`: its settings, scheduler, checks, launch flags and imports, loaded when used."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sim.engine.server_config import BOTH, DECODE, PREFILL, goes_row_by_row
from sim.family import Family, in_module
from sim.workload.results import ResultFormat

if TYPE_CHECKING:
    from sim.core.batch import Executor
    from sim.engine.core import EngineCore
    from sim.engine.page_pool import PagePool
    from sim.engine.parts import Role
    from sim.engine.scheduler import BaseScheduler
    from sim.installed.scheduler import EngineScheduler
    from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
    from sim.vllm.cache.single_type_manager import CacheRules
    from sim.vllm.config import VllmConfig
    from sim.vllm.offload.copying import CopyingConnector
    from sim.vllm.offload.role import Offload
    from sim.vllm.offload.settings import OffloadSettings
    from sim.vllm.offload.tiers import Tiers
    from sim.vllm.scheduler.connector import Connector
    from sim.vllm.scheduler.ranks import VllmRanks
    from sim.vllm.scheduler.scheduler import VllmScheduler
    from sim.vllm.section.scheduler import VllmSection

_FORMATS = (
    ResultFormat(
        "vllm-bench",
        "sim.vllm.results:read_vllm_bench",
        is_bench=True,
        key_sets=(frozenset({"endpoint_type"}), frozenset({"backend", "burstiness"})),
    ),
    ResultFormat(
        "llmservingsim",
        "sim.vllm.results:read_llmservingsim",
        folder_test="sim.vllm.results:find_requests",
    ),
)


class VllmFamily(Family):
    """vLLM, versions 0.10.2 to 0.33.0."""

    name = "vllm"
    decodes_after_prefill = True
    title = "vLLM"
    rows_key = "max_num_seqs"
    result_formats = _FORMATS
    policy_key = "scheduling_policy"
    step_tokens_key = "max_num_batched_tokens"
    host_memory_keys = ("kv_offloading_size", "kv_offloading")
    storage: ClassVar[Mapping[str, Any]] = {"kv_offloading.secondary_tiers": [{"type": "fs"}]}
    launch_command = in_module("sim.vllm.launch_flags:vllm_launch")
    parallel_flags = in_module("sim.vllm.launch_flags:vllm_parallel")
    in_role = in_module("sim.vllm.launch_flags:vllm_in_role")
    read_launch = in_module("sim.vllm.read_launch:read_vllm_launch")
    gpu_defaults = in_module("sim.vllm.read_launch:gpu_defaults")
    pools_of_model = in_module("sim.vllm.read_launch:pools_of_model")
    imported_section = in_module("sim.vllm.results:vllm_section")
    engine_log = in_module("sim.vllm.log:VllmLog")
    launch_of_log = in_module("sim.vllm.log:vllm_launch_of_log")
    measured_pool = in_module("sim.vllm.log:vllm_measured_pool")
    metrics = in_module("sim.vllm.log:vllm_metrics")
    check = in_module("sim.vllm.check:check_vllm_memory")

    def host_memory(self, size_gb: float, *, num_gpus: int, num_ranks: int) -> dict[str, float]:
        """GiB for all GPUs of a rank, as `--kv-offloading-size` has it."""
        return {"kv_offloading_size": size_gb * 1e9 / 2**30 / num_ranks}

    def policies(self) -> tuple[str, ...]:
        return "fcfs", "priority"

    def section(self) -> "type[VllmSection]":
        from sim.vllm.section.scheduler import VllmSection

        return VllmSection

    def build(self, config: "VllmConfig", pool: "PagePool") -> "BaseScheduler[Any]":
        """Only the size of `pool` is used: the block manager keeps numbered blocks of its own."""
        from sim.vllm.scheduler.scheduler import VllmScheduler

        kv = _kv_memory(config, pool)
        connector, in_lockstep = _connector(config, kv), not goes_row_by_row(config)
        scheduler = VllmScheduler(config, kv=kv, connector=connector, in_lockstep=in_lockstep)
        if config.engine is None:
            return scheduler
        from sim.vllm.installed import engine_scheduler

        return engine_scheduler(config, scheduler)

    def role(
        self, config: "VllmConfig", scheduler: "BaseScheduler[Any]", executor: "Executor"
    ) -> "Role | None":
        if config.engine is not None:
            from sim.installed.scheduler import EngineRole

            return EngineRole(cast("EngineScheduler", scheduler))
        if config.role == BOTH and config.offload is None:
            return None
        from sim.vllm.pulling import PlacedPolls, Polling, Polls, PullDecode, PullPrefill

        polls = Polls(overlaps=config.overlaps, fills_queue=scheduler.fills_places)
        if config.micro_batches > 1 and config.offload is not None:
            polls = PlacedPolls()
        roles = {PREFILL: PullPrefill, DECODE: PullDecode, BOTH: Polling}
        return roles[config.role](polls, _offload_of(config, scheduler))

    def rank_rules(
        self, config: "VllmConfig", engines: "Sequence[EngineCore]", num_front_ends: int = 1
    ) -> "VllmRanks":
        from sim.vllm.scheduler.ranks import VllmRanks

        return VllmRanks(engines, num_front_ends, config)

    @property
    def checks_model(self) -> bool:
        return True  # entrypoints/openai/models/serving.py: "The model ... does not exist."

    def metric_names(self) -> Mapping[str, str]:
        from sim.vllm.log import METRIC_NAMES

        return METRIC_NAMES

    def printed_pool(self, num_tokens: int) -> str:
        return f"GPU KV cache size: {num_tokens:,} tokens"

    def overlaps(self, settings: Mapping[str, Any]) -> bool:
        return bool(settings.get("async_scheduling"))


def _offload_of(config: "VllmConfig", scheduler: "BaseScheduler[Any]") -> "Offload | None":
    """What the workers of a server with KV in CPU memory do."""
    if config.offload is None:
        return None
    from sim.vllm.offload.copies import Copies, QueuedCopies, SimpleCopies
    from sim.vllm.offload.role import Offload

    connector = cast("CopyingConnector", cast("VllmScheduler", scheduler).connector)
    ns_per_block = config.offload.copy_ns_per_token * config.block_size
    copies: Copies = QueuedCopies(ns_per_block, config.rules)
    if config.offload.is_simple:
        copies = SimpleCopies(ns_per_block)
    return Offload(connector, copies, config.rules)


def _connector(config: "VllmConfig", kv: "KVCacheCoordinator") -> "Connector":
    """What the server does for requests that it shares, and for KV that it keeps elsewhere."""
    from sim.vllm.scheduler.connector import Connector, DecodeConnector, PrefillConnector

    connector = Connector()
    if config.role == PREFILL:
        connector = PrefillConnector(config)
    elif config.role == DECODE:
        connector = DecodeConnector(config, kv)
    if config.offload is None:
        return connector
    if config.offload.is_simple:
        from sim.vllm.offload.simple import SimpleConnector

        return SimpleConnector(config, kv, config.offload, _cache_rules(config), connector)
    from sim.vllm.offload.connector import OffloadConnector

    return OffloadConnector(config, kv, config.offload, connector, _tiers(config.offload))


def _tiers(offload: "OffloadSettings") -> "Tiers | None":
    """What lies below CPU memory."""
    from random import Random

    from sim.engine.store import Store
    from sim.vllm.offload.tier import SecondaryTier
    from sim.vllm.offload.tiers import Tiers

    tiers: list[SecondaryTier] = []
    for tier in offload.tiers:
        if tier.store is not None:
            store = Store(tier.store, Random(tier.store.seed).random)
            tiers.append(SecondaryTier(tier, store, offload.blocks_per_chunk))
    return Tiers(tiers) if tiers else None


def _kv_memory(config: "VllmConfig", pool: "PagePool") -> "KVCacheCoordinator":
    from sim.vllm.cache.kv_cache_coordinator import FULL_ATTENTION, KVCacheCoordinator

    groups = config.kv_cache_groups or FULL_ATTENTION
    return KVCacheCoordinator(pool.num_pages, pool.page_size, groups, _cache_rules(config))


def _cache_rules(config: "VllmConfig") -> "CacheRules":
    from sim.vllm.cache.kv_cache_coordinator import FULL_ATTENTION
    from sim.vllm.cache.single_type_manager import FULL, CacheRules
    from sim.vllm.scheduler.step_limits import drafting_of

    version, drafting = config.rules, drafting_of(config)
    groups = config.kv_cache_groups or FULL_ATTENTION
    most_blocks = [
        0
        if group.kind == FULL
        else group.most_blocks(
            config.num_tokens_in_flight,
            config.max_model_len,
            config.block_size,
            caches=config.enable_prefix_caching,
            num_drafts=drafting.num_tokens,
        )
        for group in groups
    ]
    return CacheRules(
        enable_caching=config.enable_prefix_caching,
        caches_all=not version.has_retention_interval,
        interval=config.prefix_cache_retention_interval,
        reuses_uncached_first=version.reuses_uncached_first,
        retires_all_states=version.retires_all_states,
        hash_lookahead=drafting.hash_lookahead,
        drops_last_block=drafting.drops_last_block,
        looks_behind=drafting.looks_behind,
        num_drafts=drafting.num_tokens,
        longest=config.max_model_len,
        # `supports_divergent_local_hybrid_hits` of all connectors, of which CPU memory's has none.
        fetches_states=config.role != BOTH and config.offload is None,
        hashes_at_once=config.offload is not None and config.offload.is_simple,
        most_blocks=tuple(most_blocks) if version.caps_admission else (),
    )
