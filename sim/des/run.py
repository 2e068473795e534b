"""A whole simulation: clients, a router and replicas, from the workload to the run log."""

from collections.abc import Sequence

from sim.des.autoscale.scaled import ScaledServers, joined_side
from sim.des.autoscale.scaler import Autoscale
from sim.des.clock import Clock
from sim.des.routers.connect import connect
from sim.des.routers.router import RoundRobin, Router
from sim.des.servers import PoolFactory, RunOptions, Servers
from sim.des.side import Side, Target
from sim.des.traffic import SimulationLog, start_traffic
from sim.engine.server_config import ServerConfig
from sim.engine.token_clock import TokenClock
from sim.latency.host import HostSection
from sim.latency.model import ReplicaLatency
from sim.runlog import RunLog
from sim.runlog.decisions import DecisionLog
from sim.runlog.fleet import FLEET, FleetLog
from sim.workload.workload import ScriptedRequest, Workload

__all__ = ["PoolFactory", "RunOptions", "simulate"]


def simulate(  # noqa: PLR0913 - what a run can be given
    workload: Workload,
    config: ServerConfig,
    latencies: Sequence[ReplicaLatency],
    *,
    router: Router | None = None,
    host: HostSection | None = None,
    num_front_ends: int = 1,
    autoscale: Autoscale | None = None,
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
        autoscale: how the number of replicas changes; there are latencies for the most that there
            may be. None: all replicas are there from the beginning to the end.
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
    scaled = None
    clocks: list[TokenClock] = []
    if autoscale is None:
        made = servers.make(env, reports, range(len(latencies)), clients_react=reacts)
        clocks += made.clocks()
        side = Side([Target(made.replicas[i], e, i) for i, e in made.entries.items()], router)
    else:
        scaled = ScaledServers(
            env,
            reports,
            servers,
            autoscale,
            clients_react=reacts,
            clocks=clocks,
            numbers=range(autoscale.max_replicas),
        )
        made = scaled.made
        side = joined_side(router, [scaled])

    def submit(request: ScriptedRequest) -> None:
        if reports.ends_warm_up(request.spec):
            for clock in clocks:
                clock.forget()
        side.choose(request.spec).entry.submit(request)

    start_traffic(env, workload, submit, reports)
    if scaled is not None:
        scaled.start()
    try:
        connect(router, list(made.replicas.values()), env, reports)
        num_steps = made.run(env)
        meta = {**servers.meta(), "simulated_steps": num_steps}
        if autoscale is not None and scaled is not None:
            gpus = [autoscale.gpus] * autoscale.max_replicas
            meta[FLEET] = FleetLog(scaled.fleet.events, gpus).to_meta()
        log = reports.builder.build(clocks, meta)
        if decisions is not None:
            decisions.close(log)
    finally:
        if decisions is not None:
            decisions.discard()
    return log
