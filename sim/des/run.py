"""A whole simulation: clients, a router and replicas, from the workload to the run log."""

from collections.abc import Sequence

from sim.des.clock import Clock
from sim.des.routers.connect import connect
from sim.des.routers.router import RoundRobin, Router, seen_replicas
from sim.des.servers import PoolFactory, RunOptions, Servers
from sim.des.traffic import SimulationLog, start_traffic
from sim.engine.server_config import ServerConfig
from sim.latency.host import HostSection
from sim.latency.model import ReplicaLatency
from sim.runlog import RunLog
from sim.runlog.decisions import DecisionLog
from sim.workload.workload import ScriptedRequest, Workload

__all__ = ["PoolFactory", "RunOptions", "simulate"]


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
    servers = Servers(config, latencies, host, num_front_ends, options or RunOptions())
    router, options = router or RoundRobin(), servers.options
    decisions = None
    if options.decisions is not None:
        decisions = DecisionLog(options.decisions, len(latencies), servers.num_ranks)
    reports = SimulationLog(None if decisions is None else decisions.steps, options.watcher)
    env = Clock()
    reacts = bool(workload.clients()) or bool(workload.phases())
    made = servers.make(env, reports, range(len(latencies)), clients_react=reacts)
    entries, clocks = list(made.entries.values()), made.clocks()
    seen = seen_replicas(router, entries)
    connect(router, list(made.replicas.values()), env, reports)

    def submit(request: ScriptedRequest) -> None:
        if reports.ends_warm_up(request.spec):
            for clock in clocks:
                clock.forget()
        entries[router.choose(request.spec, seen)].submit(request)

    start_traffic(env, workload, submit, reports)
    try:
        num_steps = made.run(env)
        log = reports.builder.build(clocks, {**servers.meta(), "simulated_steps": num_steps})
        if decisions is not None:
            decisions.close(log)
    finally:
        if decisions is not None:
            decisions.discard()
    return log
