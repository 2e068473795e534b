"""A whole simulation: clients, a router and servers, from the workload to the run log."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.core.garbage import rare_collections
from sim.des.clock import Clock
from sim.des.routers.router import RoundRobin, Router
from sim.des.server import Server
from sim.des.traffic import SimulationLog, Watcher, closed_loop, open_loop
from sim.engine.executor import ScriptedExecutor
from sim.engine.page_pool import PageCounts, PagePool
from sim.engine.server_config import ServerConfig
from sim.families import build_engine, check_engine
from sim.latency.model import LatencyModel
from sim.runlog import RunLog
from sim.runlog.decisions import DecisionLog
from sim.workload.workload import ScriptedRequest, Workload

PoolFactory = Callable[[int, int], PagePool[Any]]


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
    """

    fast_forward: bool = True
    check: bool = False
    decisions: Path | None = None
    watcher: Watcher | None = None
    pool: PoolFactory = PageCounts
    meta: Mapping[str, object] = field(default_factory=dict)


def simulate(
    workload: Workload,
    config: ServerConfig,
    latencies: Sequence[LatencyModel],
    *,
    router: Router | None = None,
    options: RunOptions | None = None,
) -> RunLog:
    """Simulate until all requests of a workload have ended.

    Args:
        workload: open-loop requests, closed-loop clients, or both.
        config: the settings of every server.
        latencies: one latency model for each server, because a model may have state.
        router: chooses a server for each request; use a new router for each run, because a router
            may have state. None: round robin.
        options: see RunOptions.

    Raises:
        InputError: a recording of step times is too short, or the decision log cannot be written.
        InvariantError: a bug in the simulator.
    """
    options = options or RunOptions()
    replicas = len(latencies)
    decisions = DecisionLog(options.decisions, replicas) if options.decisions else None
    reports = SimulationLog(decisions, options.watcher)
    env = Clock()
    servers = [
        _server(env, replica, config, latency, reports, options)
        for replica, latency in enumerate(latencies)
    ]
    router = router or RoundRobin()

    def submit(request: ScriptedRequest) -> None:
        servers[router.choose(request.spec, servers)].submit(request)

    clients = workload.clients()
    env.process(open_loop(env, workload.arrivals(), submit))
    for turns in clients:
        env.process(closed_loop(env, turns, submit, reports))
    for server in servers:
        server.start(
            overlaps=config.overlaps,
            fast_forward=options.fast_forward,
            clients_react=bool(clients),
            check=check_engine if options.check else None,
        )
    try:
        with rare_collections():
            env.run()
        meta = {
            **options.meta,
            "replicas": replicas,
            "max_total_tokens": config.pool_tokens,
            "page_size": config.page_size,
            **_host_meta(config),
            "simulated_steps": sum(server.num_steps for server in servers),
        }
        log = reports.builder.build((engine.clock for server in servers for engine in server.engines), meta)
        if decisions is not None:
            decisions.close(log)
    finally:
        if decisions is not None:
            decisions.discard()
    return log


def _host_meta(config: ServerConfig) -> dict[str, object]:
    if config.host_cache_tokens is None:
        return {}
    return {"host_cache_tokens": config.host_cache_tokens}


def _server(
    env: Clock,
    replica: int,
    config: ServerConfig,
    latency: LatencyModel,
    reports: SimulationLog,
    options: RunOptions,
) -> Server:
    executor = ScriptedExecutor()
    pool = options.pool(config.pool_tokens // config.page_size, config.page_size)
    return Server(
        env,
        replica,
        engine=build_engine(config, pool=pool, executor=executor),
        executor=executor,
        latency=latency,
        reports=reports,
    )
