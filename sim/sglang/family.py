"""Family `sglang`: its settings, scheduler, checks, launch flags and imports, loaded when used."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from sim.core.flags import Command
from sim.engine.server_config import DECODE, PREFILL
from sim.family import Family
from sim.family.launch_command import LaunchCommand, ServerSettings
from sim.sglang.results import FORMATS

if TYPE_CHECKING:
    from sim.engine.core import EngineCore
    from sim.engine.executor import Executor, JoiningExecutor
    from sim.engine.page_pool import PagePool
    from sim.engine.role import Role
    from sim.engine.scheduler import BaseScheduler
    from sim.family.section import ImportedSection
    from sim.latency.config import Parallelism
    from sim.server_log.records import LoggedServer
    from sim.sglang.config import SchedulerConfig
    from sim.sglang.log.lines import SglangLog
    from sim.sglang.scheduler.ranks import SglangRanks
    from sim.sglang.scheduler.roles.decode_server import DecodeQueues
    from sim.sglang.scheduler.roles.prefill_server import PrefillQueues
    from sim.sglang.scheduler.scheduler import SglangScheduler
    from sim.sglang.section.scheduler import SglangSection

# Of what `simulate serve` shows (0.5.23, observability/).
_METRIC_NAMES = {
    "running": "sglang:num_running_reqs",
    "waiting": "sglang:num_queue_reqs",
    "kv_usage": "sglang:token_usage",
    "prompt_tokens": "sglang:prompt_tokens",
    "cached_tokens": "sglang:cached_tokens",
    "generation_tokens": "sglang:generation_tokens",
    "requests": "sglang:num_requests",
    "preemptions": "sglang:num_retracted_requests",
    "ttft_s": "sglang:time_to_first_token_seconds",
    "itl_s": "sglang:inter_token_latency_seconds",
    "e2e_s": "sglang:e2e_request_latency_seconds",
}


class SglangFamily(Family):
    """SGLang 0.5.23."""

    name = "sglang"
    title = "SGLang"
    rows_key = "max_running_requests"
    result_formats = FORMATS
    policy_key = "schedule_policy"
    step_tokens_key = "chunked_prefill_size"
    send_queues = 4

    def policies(self) -> tuple[str, ...]:
        from sim.sglang.policies.policy import POLICIES

        return tuple(POLICIES)

    def section(self) -> "type[SglangSection]":
        from sim.sglang.section.scheduler import SglangSection

        return SglangSection

    def build(self, config: "SchedulerConfig", pool: "PagePool") -> "SglangScheduler":
        from sim.sglang.cache.build import build_kv_memory
        from sim.sglang.policies.policy import build_policy

        kv = build_kv_memory(config, pool)
        steps = None
        if config.speculation is not None:
            from sim.sglang.scheduler.decode import DraftSteps

            steps = DraftSteps(kv, config.speculation.num_tokens, config.speculative_num_steps)
        from sim.sglang.scheduler.scheduler import SglangScheduler

        return SglangScheduler(config, kv=kv, policy=build_policy(config), steps=steps)

    def role(
        self, config: "SchedulerConfig", scheduler: "BaseScheduler[Any]", executor: "Executor"
    ) -> "Role | None":
        from sim.sglang.scheduler.roles.pushing import PushDecode, PushPrefill

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

        return SglangRanks(engines, config.load_balance_method)

    def check(self, engine: "EngineCore") -> None:
        from sim.sglang.check import check_sglang_memory

        check_sglang_memory(engine)

    def metric_names(self) -> Mapping[str, str]:
        return _METRIC_NAMES

    def printed_pool(self, num_tokens: int) -> str:
        return f"max_total_num_tokens={num_tokens}"

    def overlaps(self, settings: Mapping[str, Any]) -> bool:
        return not settings.get("disable_overlap_schedule", False)

    def launch_command(
        self, section: "SglangSection", searched: Collection[str] = ()
    ) -> LaunchCommand:
        from sim.sglang.launch_flags import sglang_launch

        return sglang_launch(section, searched)

    def parallel_flags(self, spread: "Parallelism") -> tuple[str, ...]:
        from sim.sglang.launch_flags import sglang_parallel

        return sglang_parallel(spread)

    def role_flags(self, role: str) -> tuple[str, ...]:
        from sim.sglang.launch_flags import role_flags

        return role_flags(role)

    def router_command(
        self, hosts: Mapping[str, Sequence[str]], routers: Mapping[str, str]
    ) -> LaunchCommand:
        from sim.sglang.launch_flags import router_command

        return router_command(hosts, routers)

    def read_launch(self, command: Command, system: str) -> ServerSettings | None:
        from sim.sglang.read_launch import read_sglang_launch

        return read_sglang_launch(command, system)

    def gpu_defaults(self, system: str) -> dict[str, int]:
        from sim.sglang.read_launch import gpu_defaults

        return gpu_defaults(system)

    def pools_of_model(
        self, model: str, settings: Mapping[str, Any], num_stages: int
    ) -> tuple[dict[str, Any], list[str]]:
        from sim.sglang.read_launch import pools_of_model

        return pools_of_model(model, settings, num_stages)

    def imported_section(
        self, known_settings: Mapping[str, object], sizes: Sequence[int], model: str = ""
    ) -> "ImportedSection":
        from sim.sglang.results.settings import sglang_section

        return sglang_section(known_settings, sizes, model)

    def engine_log(self) -> "SglangLog":
        from sim.sglang.log.lines import SglangLog

        return SglangLog()

    def launch_of_log(self, server: "LoggedServer") -> Command:
        from sim.sglang.log.launch import sglang_launch_of_log

        return sglang_launch_of_log(server)

    def measured_pool(
        self, server: "LoggedServer", settings: Mapping[str, Any], model: str, tp: int
    ) -> dict[str, Any]:
        from sim.sglang.log.launch import sglang_measured_pool

        return sglang_measured_pool(server)
