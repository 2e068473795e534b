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
)
from calibrate.rebuild import RebuiltRun, rebuild
from sim.commands.running.simulate import servers_of
from sim.core.errors import InputError
from sim.des.deployment import Deployment
from sim.des.run import RunOptions, simulate
from sim.des.servers import Servers
from sim.engine.server_config import ServerConfig
from sim.runlog import RunLog
from sim.runlog.json_lines import Line
from sim.runlog.run_log_file import read_decisions
from sim.scenario.build import BuiltScenario, build, scheduler_config_with_pool
from sim.scenario.load import load_scenario
from sim.scenario.schema import Scenario
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that the times of a run's requests follow from, each part of either run.

    Attributes:
        workload: the requests and when they arrive.
        servers: the server, without its latency.
        prefill, decode, gaps: step times, see `BlendedLatency`. They are made anew for each
            simulation, because a recording has a place.
        stalls: steps that take much longer than others like them.
    """

    workload: Workload
    servers: Servers
    prefill: Callable[[], StepTimes]
    decode: Callable[[], StepTimes]
    gaps: Callable[[], StepTimes]
    stalls: Sequence[Stall] = ()

    def simulated(self) -> tuple[RunLog, list[Line], float]:
        """The run, its steps, and of how many steps in percent no recorded step is like it."""
        makers = (self.prefill, self.decode, self.gaps)
        made = {id(make): make() for make in makers}
        prefill, decode, gaps = (made[id(make)] for make in makers)
        latency = BlendedLatency(prefill, decode, gaps, self.stalls)
        deployment = Deployment.of_servers(self.servers._replace(latencies=[latency]))
        with TemporaryDirectory() as folder:
            decisions = Path(folder) / "decisions.jsonl"
            options = RunOptions(fast_forward=False, decisions=decisions)
            log = simulate(self.workload, deployment, options)
            steps, _ = read_decisions(decisions)
        recorded = [times for times in made.values() if isinstance(times, RecordedTimes)]
        asked = sum(times.num_asked for times in recorded)
        unlike = sum(times.num_unlike for times in recorded)
        return log, steps, 100 * unlike / asked if asked else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs.

    Attributes:
        name: of its file.
        scenario: its scenario.
        pool_tokens: size of its KV pool.
        base_dir: what paths in the scenario are relative to.
        world: what its times follow from.
        log, steps: what was measured; None, and empty, for a scenario.
    """

    name: str
    scenario: Scenario
    pool_tokens: int
    base_dir: Path
    world: World
    log: RunLog | None
    steps: Sequence[Line]

    def times(self) -> RecordedTimes | None:
        """The recorded times; None for a scenario."""
        made = self.world.prefill()
        return made if isinstance(made, RecordedTimes) else None

    def config_with(self, settings: Mapping[str, Any], pool_tokens: int) -> ServerConfig:
        """This side's server with some settings of its scheduler's section changed.

        Raises:
            InputError: the settings do not go together.
        """
        section = self.scenario.scheduler
        changed = section.model_copy(update=dict(settings))
        scenario = self.scenario.model_copy(update={"scheduler": changed})
        return scheduler_config_with_pool(scenario, pool_tokens, base_dir=self.base_dir)


def read_side(path: Path, base_dir: Path | None, skip: int) -> Side:
    """Read a run log, or a scenario if the file's name ends in .yaml or .yml.

    Raises:
        InputError: the file is bad, or has more than one server.
    """
    if path.suffix in {".yaml", ".yml"}:
        return _of_scenario(path)
    run = rebuild(path, base_dir, skip)
    make = partial(RecordedTimes, run.recorded.steps, overlaps=run.overlaps)

    world = World(
        workload=run.workload,
        servers=Servers(run.config, ()),
        prefill=make,
        decode=make,
        gaps=make,
        stalls=make().stalls(),
    )
    return Side(
        name=run.name,
        scenario=run.scenario,
        pool_tokens=run.recorded.meta["max_total_tokens"],
        base_dir=base_dir or path.parent,
        world=world,
        log=run.log,
        steps=_of_one_server(run),
    )


def _of_one_server(run: RebuiltRun) -> list[Line]:
    if {step["replica"] for step in run.recorded.steps} != {0}:
        reason = "has several servers; calibrate explain compares runs of one"
        raise InputError(f"{run.recorded.path}: {reason}")
    return run.recorded.steps


def _of_scenario(path: Path) -> Side:
    built = build(load_scenario(path))
    _the_one_latency(path, built)

    def make() -> StepTimes:
        return ModelTimes(_the_one_latency(path, build(built.loaded)))

    world = World(
        workload=built.workload,
        servers=servers_of(built),
        prefill=make,
        decode=make,
        gaps=make,
    )
    return Side(
        name=path.name,
        scenario=built.loaded.scenario,
        pool_tokens=built.scheduler.pool_tokens,
        base_dir=built.loaded.base_dir,
        world=world,
        log=None,
        steps=(),
    )


def _the_one_latency(path: Path, built: BuiltScenario) -> Any:
    one = (
        not built.pools and len(built.latencies) == 1 and not isinstance(built.latencies[0], tuple)
    )
    if not one:
        reason = "has several servers or ranks; calibrate explain compares runs of one"
        raise InputError(f"{path}: {reason}")
    return built.latencies[0]
