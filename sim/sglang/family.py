"""Family `sglang`: its settings, scheduler, checks, launch flags and imports, loaded when used."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sim.core.errors import InputError
from sim.engine.server_config import DECODE, PREFILL
from sim.family import Family, in_module
from sim.sglang.results import FORMATS

if TYPE_CHECKING:
    from sim.core.batch import Executor, JoiningExecutor
    from sim.engine.core import EngineCore
    from sim.engine.page_pool import PagePool
    from sim.engine.parts import Role
    from sim.engine.scheduler import BaseScheduler
    from sim.engine.store import Store
    from sim.installed.scheduler import EngineScheduler
    from sim.server_log.records import LoggedServer
    from sim.sglang.config import SchedulerConfig
    from sim.sglang.scheduler.ranks import SglangRanks
    from sim.sglang.scheduler.roles.decode_server import DecodeQueues
    from sim.sglang.scheduler.roles.prefill_server import PrefillQueues
    from sim.sglang.scheduler.scheduler import SglangScheduler
    from sim.sglang.section.scheduler import SglangSection


def _store_of(config: "SchedulerConfig") -> "Store | None":
    """The store below host memory; None: there is none."""
    storage = None if config.host_cache is None else config.host_cache.storage
    if storage is None:
        return None
    from random import Random

    from sim.engine.store import Store

    return Store(storage.store, Random(storage.store.seed).random)


class SglangFamily(Family):
    """SGLang 0.5.23."""

    name = "sglang"
    title = "SGLang"
    rows_key = "max_running_requests"
    result_formats = FORMATS
    policy_key = "schedule_policy"
    step_tokens_key = "chunked_prefill_size"
    send_queues = 4
    host_memory_keys = ("host_cache",)
    storage: ClassVar[Mapping[str, Any]] = {"host_cache.storage": {}}
    launch_command = in_module("sim.sglang.launch_flags:sglang_launch")
    parallel_flags = in_module("sim.sglang.launch_flags:sglang_parallel")
    in_role = in_module("sim.sglang.launch_flags:sglang_in_role")
    router_command = in_module("sim.sglang.launch_flags:router_command")
    read_launch = in_module("sim.sglang.read_launch:read_sglang_launch")
    gpu_defaults = in_module("sim.sglang.read_launch:gpu_defaults")
    pools_of_model = in_module("sim.sglang.read_launch:pools_of_model")
    imported_section = in_module("sim.sglang.results.settings:sglang_section")
    engine_log = in_module("sim.sglang.log:SglangLog")
    launch_of_log = in_module("sim.sglang.log:sglang_launch_of_log")
    metrics = in_module("sim.sglang.log:sglang_metrics")
    check = in_module("sim.sglang.check:check_sglang_memory")

    def policies(self) -> tuple[str, ...]:
        from sim.sglang.policies.policy import POLICIES

        return tuple(POLICIES)

    def section(self) -> "type[SglangSection]":
        from sim.sglang.section.scheduler import SglangSection

        return SglangSection

    def build(self, config: "SchedulerConfig", pool: "PagePool") -> "BaseScheduler[Any]":
        from sim.sglang.cache.build import build_kv_memory
        from sim.sglang.policies.policy import build_policy

        kv = build_kv_memory(config, pool, _store_of(config))
        steps = None
        if config.speculation is not None:
            from sim.sglang.scheduler.draft_steps import DraftSteps

            steps = DraftSteps(kv, config.speculation.num_tokens, config.speculative_num_steps)
        from sim.sglang.scheduler.scheduler import SglangScheduler

        scheduler = SglangScheduler(config, kv=kv, policy=build_policy(config), steps=steps)
        if config.engine is None:
            return scheduler
        from sim.sglang.installed import engine_scheduler

        return engine_scheduler(config, scheduler)

    def role(
        self, config: "SchedulerConfig", scheduler: "BaseScheduler[Any]", executor: "Executor"
    ) -> "Role | None":
        from sim.sglang.scheduler.roles.pushing import PushDecode, PushPrefill

        if config.engine is not None:
            from sim.installed.scheduler import EngineRole

            return EngineRole(cast("EngineScheduler", scheduler))
        queues = cast("SglangScheduler", scheduler).queues
        if config.role == PREFILL:
            return PushPrefill(cast("PrefillQueues", queues), config.micro_batches)
        if config.role == DECODE:
            return PushDecode(cast("DecodeQueues", queues), cast("JoiningExecutor", executor))
        return None

    def rank_rules(
        self, config: "SchedulerConfig", engines: "Sequence[EngineCore]", num_front_ends: int = 1
    ) -> "SglangRanks":
        from sim.sglang.scheduler.ranks import SglangRanks

        return SglangRanks(engines, config.load_balance_method, overlaps=config.overlaps)

    def host_memory(self, size_gb: float, *, num_gpus: int, num_ranks: int) -> dict[str, float]:
        """Whole GB for each GPU, as `--hicache-size` has it."""
        size_of_gpu = size_gb / num_gpus
        if not size_of_gpu.is_integer():
            raise InputError(
                f"{size_gb:g} GB of DRAM are {size_of_gpu:g} GB for each GPU, but --hicache-size"
                " takes whole GB"
            )
        return {"host_cache.size_gb": int(size_of_gpu)}

    def metric_names(self) -> Mapping[str, str]:
        from sim.sglang.log import METRIC_NAMES

        return METRIC_NAMES

    def printed_pool(self, num_tokens: int) -> str:
        return f"max_total_num_tokens={num_tokens}"

    def overlaps(self, settings: Mapping[str, Any]) -> bool:
        return not settings.get("disable_overlap_schedule", False)

    def measured_pool(
        self, server: "LoggedServer", settings: Mapping[str, Any], model: str, tp: int
    ) -> dict[str, Any]:
        from sim.sglang.log import sglang_measured_pool

        return sglang_measured_pool(server)
