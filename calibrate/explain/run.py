"""One of the two runs that are compared: a real run's log, or a scenario that is simulated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from calibrate.explain.times import (
    BlendedLatency,
    ModelTimes,
    RecordedTimes,
    Stall,
    StepTimes,
    asked_and_unlike,
)
from calibrate.rebuild import RebuiltRun, rebuild
from sim.commands.running.simulate import autoscale_of, servers_of
from sim.core.errors import InputError
from sim.des.autoscale.scaler import Autoscale
from sim.des.deployment import Deployment
from sim.des.routers.router import Router
from sim.des.routers.table import make_router
from sim.des.run import RunOptions, simulate
from sim.des.servers import Servers
from sim.engine.server_config import ServerConfig
from sim.latency.model import ReplicaLatency, each_latency
from sim.runlog import RunLog
from sim.runlog.json_lines import Line
from sim.runlog.run_log_file import read_decisions
from sim.scenario.build import build, scheduler_config_with_pool
from sim.scenario.load import load_scenario
from sim.scenario.schema import Scenario
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that the times of a run's requests follow from, each part of either run.

    Attributes:
        workload: the requests and when they arrive.
        servers: what every server is like, without its latency.
        num_servers, num_ranks: how many servers there are, or may be, and the ranks of each.
        router: makes the router; None: there is one server.
        autoscale: how the number of servers changes; None: it does not.
        prefill, decode, gaps: step times, see `BlendedLatency`. They are made anew for each
            simulation, because a recording has a place.
        stalls: steps that take much longer than others like them.
    """

    workload: Workload
    servers: Servers
    num_servers: int = 1
    num_ranks: int = 1
    router: Callable[[], Router] | None = None
    autoscale: Autoscale | None = None
    prefill: Callable[[], StepTimes]
    decode: Callable[[], StepTimes]
    gaps: Callable[[], StepTimes]
    stalls: Sequence[Stall] = ()

    def simulated_with_steps(self) -> tuple[RunLog, list[Line]]:
        """The run, and what each of its steps computes."""
        with TemporaryDirectory() as folder:
            decisions = Path(folder) / "decisions.jsonl"
            log, _ = self.simulated(decisions)
            steps, _ = read_decisions(decisions)
        return log, steps

    def simulated(self, decisions: Path | None = None) -> tuple[RunLog, float]:
        """The run, and the share of its steps in percent that are unlike every recorded step.

        With `decisions`, the decision log is written there.
        """
        # Only one of several servers stalls, because a log is of one.
        blended = [
            self._latency(() if number else self.stalls)
            for number in range(self.num_servers * self.num_ranks)
        ]
        latencies: list[ReplicaLatency] = list(blended)
        if self.num_ranks > 1:
            latencies = [
                tuple(blended[first : first + self.num_ranks])
                for first in range(0, len(blended), self.num_ranks)
            ]
        router = None if self.router is None else self.router()
        servers = self.servers._replace(latencies=latencies)
        deployment = Deployment.of_servers(servers, router, self.autoscale)
        options = RunOptions(fast_forward=False, decisions=decisions)
        log = simulate(self.workload, deployment, options)
        counts = [asked_and_unlike(latency) for latency in blended]
        num_asked = sum(asked for asked, _ in counts)
        num_unlike = sum(unlike for _, unlike in counts)
        return log, 100 * num_unlike / num_asked if num_asked else 0.0

    def _latency(self, stalls: Sequence[Stall]) -> BlendedLatency:
        makers = (self.prefill, self.decode, self.gaps)
        made = {id(make): make() for make in makers}
        prefill, decode, gaps = (made[id(make)] for make in makers)
        return BlendedLatency(prefill, decode, gaps, stalls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One of the two runs.

    Attributes:
        name: of its file.
        scenario: its scenario.
        pool_tokens: size of its KV pool.
        base_dir: what paths in the scenario are relative to.
        setup: what its times follow from.
        log, steps: what was measured; None, and empty, for a scenario.
    """

    name: str
    scenario: Scenario
    pool_tokens: int
    base_dir: Path
    setup: Setup
    log: RunLog | None
    steps: Sequence[Line]

    def times(self) -> RecordedTimes | None:
        """The recorded times; None for a scenario."""
        made = self.setup.prefill()
        return made if isinstance(made, RecordedTimes) else None

    def config_with(self, settings: Mapping[str, Any], pool_tokens: int) -> ServerConfig:
        """This run's server with some settings of its scheduler's section changed.

        Raises:
            InputError: the settings do not go together.
        """
        section = self.scenario.scheduler
        changed = section.model_copy(update=dict(settings))
        scenario = self.scenario.model_copy(update={"scheduler": changed})
        return scheduler_config_with_pool(scenario, pool_tokens, base_dir=self.base_dir)


def run_of_log(path: Path, base_dir: Path | None = None, skip: int = 0) -> Run:
    """Read the log of a real run.

    Args:
        path: the log.
        base_dir: what paths in its scenario are relative to; None: the log's folder.
        skip: how many of the first requests are in no figure.

    Raises:
        InputError: the log is bad, or is of several servers.
    """
    rebuilt = rebuild(path, base_dir, skip)
    times = RecordedTimes(rebuilt.recorded.steps, overlaps=rebuilt.overlaps)

    def make() -> StepTimes:
        return times.from_the_beginning()

    setup = Setup(
        workload=rebuilt.workload,
        servers=Servers(rebuilt.config, ()),
        prefill=make,
        decode=make,
        gaps=make,
        stalls=times.stalls(),
    )
    return Run(
        name=rebuilt.name,
        scenario=rebuilt.scenario,
        pool_tokens=rebuilt.recorded.meta["max_total_tokens"],
        base_dir=base_dir or path.parent,
        setup=setup,
        log=rebuilt.log,
        steps=_of_one_server(rebuilt),
    )


def _of_one_server(rebuilt: RebuiltRun) -> list[Line]:
    if len({step["replica"] for step in rebuilt.recorded.steps}) > 1:
        reason = "has several servers; calibrate explain compares runs of one"
        raise InputError(f"{rebuilt.recorded.path}: {reason}")
    return rebuilt.recorded.steps


def run_of_scenario(path: Path, overrides: Sequence[str] = ()) -> Run:
    """Read a scenario; `overrides` of its keys are those of `--set`.

    Raises:
        InputError: the scenario is bad, or has pools or pipeline stages.
    """
    built = build(load_scenario(path, overrides))
    if built.pools or built.scheduler.micro_batches > 1:
        reason = "has pools or pipeline stages, which calibrate explain cannot take apart yet"
        raise InputError(f"{path}: {reason}")
    scenario, base_dir = built.loaded.scenario, built.loaded.base_dir

    def make() -> StepTimes:
        # Of all kinds, only a recording changes with the steps that it is asked for.
        fresh = build(built.loaded) if scenario.latency.kind == "recorded" else built
        return ModelTimes(next(each_latency(fresh.latencies)))

    setup = Setup(
        workload=built.workload,
        servers=servers_of(built),
        num_servers=len(built.latencies),
        num_ranks=servers_of(built).num_ranks,
        router=partial(make_router, scenario.router, base_dir, scenario.seed),
        autoscale=autoscale_of(scenario),
        prefill=make,
        decode=make,
        gaps=make,
    )
    return Run(
        name=path.name,
        scenario=scenario,
        pool_tokens=built.scheduler.pool_tokens,
        base_dir=base_dir,
        setup=setup,
        log=None,
        steps=(),
    )
