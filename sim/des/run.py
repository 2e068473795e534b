"""A whole simulation: clients, a router and replicas, from the workload to the run log."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError, InvariantError
from sim.core.garbage import rare_collections
from sim.des.clock import Clock
from sim.des.front_end import FrontEnd
from sim.des.group import Group, Rank
from sim.des.pipeline import Pipeline
from sim.des.replica import Replica, ServerOptions
from sim.des.routers.router import RoundRobin, Router
from sim.des.server import Server
from sim.des.traffic import SimulationLog, Watcher, start_traffic
from sim.engine.core import EngineCore
from sim.engine.executor import ScriptedExecutor
from sim.engine.page_pool import PageCounts, PagePool
from sim.engine.pipeline import PipelineEngine, PipelineExecutor
from sim.engine.server_config import ServerConfig
from sim.engine.token_clock import TokenClock
from sim.families import build_engine, check_engine, rank_rules
from sim.latency.host import HostSection
from sim.latency.model import LatencyModel, ReplicaLatency, each_latency
from sim.latency.stages import StagedLatency
from sim.runlog import RunLog
from sim.runlog.decisions import DecisionLog
from sim.workload.workload import ScriptedRequest, Workload

PoolFactory = Callable[[int, int], PagePool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to simulate. None of these options changes the simulated times or decisions.

    Attributes:
        fast_forward: take many decode steps at once where all of them repeat one decision.
        check: verify all invariants after every step; slow.
        decisions: path of the decision log to write; None: write none.
        watcher: called with the progress.
        pool: makes the page pool from `(num_pages, page_size)`.
        meta: further entries of the log's meta data.
        timed_gaps: the log says when each token gap ended.
    """

    fast_forward: bool = True
    check: bool = False
    decisions: Path | None = None
    watcher: Watcher | None = None
    pool: PoolFactory = PageCounts
    meta: Mapping[str, object] = field(default_factory=dict)
    timed_gaps: bool = False


def simulate(
    workload: Workload,
    config: ServerConfig,
    latencies: Sequence[ReplicaLatency],
    *,
    router: Router | None = None,
    host: HostSection | None = None,
    num_front_ends: int = 1,
    options: RunOptions | None = None,
) -> RunLog:
    """Simulate until all requests of a workload have ended.

    Args:
        workload: open-loop requests, closed-loop clients, a benchmark's phases, or several.
        config: the settings of every server, or of every rank.
        latencies: of each replica: one latency model, because a model may have state; or a tuple
            with one for each of its ranks, of which every replica has as many. Ranks of a replica
            step together. With `config.micro_batches` above 1 it must be a `StagedLatency`.
        router: chooses a replica for each request; use a new router for each run, because a router
            may have state. None: round robin.
        host: what a request passes before a scheduler can see it. None: nothing.
        num_front_ends: processes of each server's front end, if there is a `host`.
        options: see RunOptions.

    Raises:
        InputError: a recording of step times is too short, or the decision log cannot be written.
        InvariantError: a bug in the simulator.
    """
    options = options or RunOptions()
    num_ranks = len(list(each_latency(latencies[:1])))
    decisions = None
    if options.decisions is not None:
        decisions = DecisionLog(options.decisions, len(latencies), num_ranks)
    reports = SimulationLog(decisions, options.watcher)
    env = Clock()
    server_options = ServerOptions(
        overlaps=config.overlaps,
        fast_forward=options.fast_forward,
        clients_react=bool(workload.clients()) or bool(workload.phases()),
        check=check_engine if options.check else None,
    )
    if host is None:
        num_front_ends = 1
    make = _Maker(env, config, reports, options.pool, server_options, num_front_ends)
    replicas = [make.replica(number, latency) for number, latency in enumerate(latencies)]
    router = router or RoundRobin()
    entries: Sequence[Replica | FrontEnd] = replicas
    if host is not None:
        entries = [FrontEnd(env, host, replica, num_front_ends) for replica in replicas]

    def submit(request: ScriptedRequest) -> None:
        if reports.ends_warm_up(request.spec):
            for clock in _clocks(replicas):
                clock.forget()
        entries[router.choose(request.spec, entries)].submit(request)

    _keep_times(replicas, wanted=options.timed_gaps)
    start_traffic(env, workload, submit, reports)
    for replica in replicas:
        replica.start()
    try:
        with rare_collections():
            _run(env)
        meta = {**options.meta, **_meta(config, replicas, num_ranks)}
        log = reports.builder.build(_clocks(replicas), meta)
        if decisions is not None:
            decisions.close(log)
    finally:
        if decisions is not None:
            decisions.discard()
    return log


def _keep_times(replicas: Sequence[Replica], *, wanted: bool) -> None:
    for clock in _clocks(replicas):
        clock.keeps_times = wanted


def _run(env: Clock) -> None:
    """Run to the end. SimPy raises a copy of an error, which does not know its key any more."""
    original: InputError | None = None
    try:
        env.run()
    except InputError as error:
        if not isinstance(error.__cause__, InputError):
            raise
        original = error.__cause__
    if original is not None:
        raise original


def _clocks(replicas: Sequence[Replica]) -> list[TokenClock]:
    return [engine.clock for replica in replicas for engine in replica.engines]


def _meta(config: ServerConfig, replicas: Sequence[Replica], num_ranks: int) -> dict[str, object]:
    """The log's meta data about servers; see `RunLog`."""
    meta: dict[str, object] = {"replicas": len(replicas)}
    if num_ranks > 1:
        meta["ranks"] = num_ranks
    if config.micro_batches > 1:
        meta["micro_batches"] = config.micro_batches
    meta |= {"max_total_tokens": config.pool_tokens, "page_size": config.page_size}
    if config.host_cache_tokens is not None:
        meta["host_cache_tokens"] = config.host_cache_tokens
    meta["simulated_steps"] = sum(replica.num_steps for replica in replicas)
    return meta


class _Maker(NamedTuple):
    """Makes servers, and groups of ranks, of one configuration."""

    env: Clock
    config: ServerConfig
    reports: SimulationLog
    pool: PoolFactory
    options: ServerOptions
    num_front_ends: int

    def replica(self, number: int, latency: ReplicaLatency) -> Replica:
        if isinstance(latency, tuple):
            return self._group(number, latency)
        engine, executor = self._engine()
        if isinstance(engine, PipelineEngine):
            return self._pipeline(number, engine, executor, latency)
        return Server(
            self.env,
            number,
            engine=engine,
            executor=executor,
            latency=latency,
            reports=self.reports,
            options=self.options,
        )

    def _pipeline(
        self,
        number: int,
        engine: PipelineEngine,
        executor: ScriptedExecutor,
        latency: LatencyModel,
    ) -> Pipeline:
        if not isinstance(latency, StagedLatency):
            raise InvariantError("a pipeline needs the times of its stages")
        return Pipeline(
            self.env,
            number,
            engine=engine,
            executor=executor,
            latency=latency,
            reports=self.reports,
            options=self.options,
        )

    def _group(self, number: int, latencies: tuple[LatencyModel, ...]) -> Group:
        first = number * len(latencies)
        ranks = [Rank(rank, *self._engine(), each) for rank, each in enumerate(latencies, first)]
        engines = [rank.engine for rank in ranks]
        rules = rank_rules(self.config, engines, self.num_front_ends)
        reports, options = self.reports, self.options
        return Group(self.env, number, ranks=ranks, rules=rules, reports=reports, options=options)

    def _engine(self) -> tuple[EngineCore, ScriptedExecutor]:
        executor = PipelineExecutor() if self.config.micro_batches > 1 else ScriptedExecutor()
        page_size = self.config.page_size
        pool = self.pool(self.config.pool_tokens // page_size, page_size)
        return build_engine(self.config, pool=pool, executor=executor), executor
