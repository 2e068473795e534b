"""One of the two runs that are compared, and what it is made of; scenarios are read here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from calibrate.explain.setup import PoolSetup, Setup
from calibrate.explain.times import ModelTimes, RecordedTimes, StepTimes
from sim.commands.running.simulate import deployment_of, servers_of
from sim.core.packed import Line
from sim.des.deployment import ServerPool
from sim.des.routers.router import Router
from sim.des.routers.table import make_router
from sim.engine.server_config import ServerConfig
from sim.latency.config import parallelism
from sim.latency.model import each_latency
from sim.runlog import RunLog
from sim.scenario.build import BuiltScenario, build, config_of_role, located_errors
from sim.scenario.kv_sizes import load_shapes
from sim.scenario.load import load_scenario
from sim.scenario.schema import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPool:
    """The servers of a pool of a run, or all of them.

    Attributes:
        scenario: the scenario that its servers alone would have.
        pool_tokens: size of a server's KV pool.
        base_dir: what paths in the scenario are relative to.
        setup: what the times of its steps follow from.
        steps: what was measured; empty for a scenario.
    """

    scenario: Scenario
    pool_tokens: int
    base_dir: Path
    setup: PoolSetup
    steps: Sequence[Line] = ()

    def times(self) -> list[RecordedTimes]:
        """The recorded times of each server; none for a scenario."""
        made = map(self.setup.prefill, range(self.setup.num_servers))
        return [times for times in made if isinstance(times, RecordedTimes)]

    @property
    def num_stages(self) -> int:
        """The pipeline stages of a server."""
        return parallelism(self.scenario.latency).pp

    def config_with(self, settings: Mapping[str, Any], pool_tokens: int) -> ServerConfig:
        """A server with some settings of its scheduler's section changed.

        Raises:
            InputError: the settings do not go together.
        """
        changed = self.scenario.scheduler.model_copy(update=dict(settings))
        section = changed.of_role(self.setup.role)
        scenario = self.scenario.model_copy(update={"scheduler": section})
        model = load_shapes(scenario, self.base_dir)[0]
        return config_of_role(scenario, pool_tokens, self.setup.role, model, base_dir=self.base_dir)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One of the two runs.

    Attributes:
        name: of its file.
        scenario: its scenario.
        setup: what its times follow from.
        pools: its servers, by the names that `setup.pools` has.
        log, steps: what was measured; None, and empty, for a scenario.
        served_by: of the logs of several servers: which of them each request went to.
    """

    name: str
    scenario: Scenario
    setup: Setup
    pools: Mapping[str, RunPool]
    log: RunLog | None = None
    steps: Sequence[Line] = ()
    served_by: Mapping[str, int] = field(default_factory=dict)

    def place(self, number: int) -> tuple[str, int]:
        """The pool of the server, or rank, that has this number in a log, and its number there."""
        first = 0
        for name, pool in self.setup.pools.items():
            end = first + pool.num_servers * pool.num_ranks
            if number < end:
                return name, number - first
            first = end
        return "", number


def run_of_scenario(path: Path, overrides: Sequence[str] = ()) -> Run:
    """Read a scenario; `overrides` of its keys are those of `--set`.

    Raises:
        InputError: the scenario is bad.
    """
    built = build(load_scenario(path, overrides))
    scenario, base_dir = built.loaded.scenario, built.loaded.base_dir
    with located_errors(built.loaded):
        deployment = deployment_of(built)
    pools = {made.name: _pool(built, made.name, made) for made in deployment.pools}
    routers: dict[str, Callable[[], Router]] = {
        pool.setup.role: partial(make_router, pool.scenario.router, base_dir, scenario.seed)
        for pool in pools.values()
    }
    setup = Setup(
        workload=built.workload,
        pools={name: pool.setup for name, pool in pools.items()},
        routers=routers,
        handover=deployment.handover,
    )
    return Run(name=path.name, scenario=scenario, setup=setup, pools=pools)


def _pool(whole: BuiltScenario, name: str, made: ServerPool) -> RunPool:
    """One pool of a scenario, or its servers if it has no pools."""
    built = whole.pools[name] if whole.pools else whole

    def make(number: int) -> StepTimes:
        # Of all kinds, only a recording changes with the steps that it is asked for.
        fresh = built
        if built.loaded.scenario.latency.kind == "recorded":
            again = build(whole.loaded)
            fresh = again.pools[name] if again.pools else again
        models = list(each_latency(fresh.latencies))
        return ModelTimes(models[number % len(models)], foresees=built.foresees)

    return RunPool(
        scenario=built.loaded.scenario,
        pool_tokens=built.scheduler.pool_tokens,
        base_dir=built.loaded.base_dir,
        setup=PoolSetup(
            role=made.role,
            servers=servers_of(built)._replace(latencies=()),
            num_servers=len(built.latencies),
            num_ranks=made.servers.num_ranks,
            autoscale=made.autoscale,
            gpus=made.gpus,
            received=made.received,
            prefill=make,
            decode=make,
            gaps=make,
            in_stages=built.in_stages,
        ),
    )
