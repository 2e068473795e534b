"""Family `vllm`: its settings, scheduler, checks, launch flags and imports, loaded when used."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.core.flags import Command
from sim.engine.server_config import BOTH, DECODE, PREFILL, goes_row_by_row
from sim.family import Family
from sim.family.launch_command import LaunchCommand, ServerSettings
from sim.workload.results import ResultFormat

if TYPE_CHECKING:
    from sim.engine.core import EngineCore
    from sim.engine.executor import Executor
    from sim.engine.page_pool import PagePool
    from sim.engine.role import Role
    from sim.engine.scheduler import BaseScheduler
    from sim.family.section import ImportedSection
    from sim.latency.config import Parallelism
    from sim.server_log.records import LoggedServer
    from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
    from sim.vllm.config import VllmConfig
    from sim.vllm.log.lines import VllmLog
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
# Of `simulate serve` (0.33.0, v1/metrics/loggers.py).
_METRIC_NAMES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_usage": "vllm:kv_cache_usage_perc",
    "prompt_tokens": "vllm:prompt_tokens",
    "cached_tokens": "vllm:prefix_cache_hits",
    "generation_tokens": "vllm:generation_tokens",
    "requests": "vllm:request_success",
    "preemptions": "vllm:num_preemptions",
    "ttft_s": "vllm:time_to_first_token_seconds",
    "itl_s": "vllm:inter_token_latency_seconds",
    "e2e_s": "vllm:e2e_request_latency_seconds",
}


class VllmFamily(Family):
    """vLLM, versions 0.10.2 to 0.33.0."""

    name = "vllm"
    decodes_after_prefill = True
    title = "vLLM"
    rows_key = "max_num_seqs"
    result_formats = _FORMATS
    policy_key = "scheduling_policy"
    step_tokens_key = "max_num_batched_tokens"

    def policies(self) -> tuple[str, ...]:
        return "fcfs", "priority"

    def section(self) -> "type[VllmSection]":
        from sim.vllm.section.scheduler import VllmSection

        return VllmSection

    def build(self, config: "VllmConfig", pool: "PagePool") -> "VllmScheduler":
        """Only the size of `pool` is used: the block manager keeps numbered blocks of its own."""
        from sim.vllm.scheduler.scheduler import VllmScheduler

        kv = _kv_memory(config, pool)
        connector, in_lockstep = _connector(config, kv), not goes_row_by_row(config)
        return VllmScheduler(config, kv=kv, connector=connector, in_lockstep=in_lockstep)

    def role(
        self, config: "VllmConfig", scheduler: "BaseScheduler[Any]", executor: "Executor"
    ) -> "Role | None":
        if config.role == BOTH:
            return None
        from sim.vllm.pulling import Polls, PullDecode, PullPrefill

        polls = Polls(overlaps=config.overlaps, fills_queue=scheduler.fills_places)
        return PullPrefill(polls) if config.role == PREFILL else PullDecode(polls)

    def rank_rules(
        self, config: "VllmConfig", engines: "Sequence[EngineCore]", num_front_ends: int = 1
    ) -> "VllmRanks":
        from sim.vllm.scheduler.ranks import VllmRanks

        return VllmRanks(engines, num_front_ends, config)

    def check(self, engine: "EngineCore") -> None:
        from sim.vllm.check import check_vllm_memory

        check_vllm_memory(engine)

    @property
    def checks_model(self) -> bool:
        return True  # entrypoints/openai/models/serving.py: "The model ... does not exist."

    def metric_names(self) -> Mapping[str, str]:
        return _METRIC_NAMES

    def printed_pool(self, num_tokens: int) -> str:
        return f"GPU KV cache size: {num_tokens:,} tokens"

    def overlaps(self, settings: Mapping[str, Any]) -> bool:
        return bool(settings.get("async_scheduling"))

    def launch_command(
        self, section: "VllmSection", searched: Collection[str] = ()
    ) -> LaunchCommand:
        from sim.vllm.launch_flags import vllm_launch

        return vllm_launch(section, searched)

    def parallel_flags(self, spread: "Parallelism") -> tuple[str, ...]:
        from sim.vllm.launch_flags import vllm_parallel

        return vllm_parallel(spread)

    def role_flags(self, role: str) -> tuple[str, ...]:
        if role == BOTH:
            return ()
        does = "kv_producer" if role == PREFILL else "kv_consumer"
        return (
            f"""--kv-transfer-config '{{"kv_connector":"NixlConnector","kv_role":"{does}"}}'""",
        )

    def read_launch(self, command: Command, system: str) -> ServerSettings | None:
        from sim.vllm.read_launch import read_vllm_launch

        return read_vllm_launch(command, system)

    def gpu_defaults(self, system: str) -> dict[str, int]:
        from sim.vllm.read_launch import gpu_defaults

        return gpu_defaults(system)

    def pools_of_model(
        self, model: str, settings: Mapping[str, Any], num_stages: int
    ) -> tuple[dict[str, Any], list[str]]:
        from sim.vllm.read_launch import pools_of_model

        return pools_of_model(model, settings, num_stages)

    def imported_section(
        self, known_settings: Mapping[str, object], sizes: Sequence[int], model: str = ""
    ) -> "ImportedSection":
        from sim.vllm.results import vllm_section

        return vllm_section(known_settings, sizes, model)

    def engine_log(self) -> "VllmLog":
        from sim.vllm.log.lines import VllmLog

        return VllmLog()

    def launch_of_log(self, server: "LoggedServer") -> Command:
        from sim.vllm.log.launch import vllm_launch_of_log

        return vllm_launch_of_log(server)

    def measured_pool(
        self, server: "LoggedServer", settings: Mapping[str, Any], model: str, tp: int
    ) -> dict[str, Any]:
        from sim.vllm.log.launch import vllm_measured_pool

        return vllm_measured_pool(server, settings, model, tp)


def _connector(config: "VllmConfig", kv: "KVCacheCoordinator") -> "Connector":
    """What the server does for requests that it shares with one of another role."""
    from sim.vllm.scheduler.connector import Connector, DecodeConnector, PrefillConnector

    if config.role == PREFILL:
        return PrefillConnector(config)
    return DecodeConnector(config, kv) if config.role == DECODE else Connector()


def _kv_memory(config: "VllmConfig", pool: "PagePool") -> "KVCacheCoordinator":
    """The KV memory of a server."""
    from sim.vllm.cache.kv_cache_coordinator import FULL_ATTENTION, KVCacheCoordinator
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
    rules = CacheRules(
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
        has_connector=config.role != BOTH,
        most_blocks=tuple(most_blocks) if version.caps_admission else (),
    )
    return KVCacheCoordinator(pool.num_pages, pool.page_size, groups, rules)
