"""A whole simulation: clients, routers and servers, from the workload to the run log."""

from sim.des.clock import Clock
from sim.des.deployment import Deployment
from sim.des.running import Running
from sim.des.servers import PoolFactory, RunOptions
from sim.des.traffic import SimulationLog, start_traffic
from sim.runlog import RunLog
from sim.runlog.decisions import DecisionLog
from sim.runlog.servers import logged_pools
from sim.workload.workload import ScriptedRequest, Workload

__all__ = ["PoolFactory", "RunOptions", "simulate"]


def simulate(
    workload: Workload, deployment: Deployment, options: RunOptions | None = None
) -> RunLog:
    """Simulate until all requests of a workload have ended.

    Args:
        workload: open-loop requests, closed-loop clients, a benchmark's phases, or several.
        deployment: what serves them.
        options: see RunOptions.

    Raises:
        InputError: a recording of step times is too short, or the decision log cannot be written.
        InvariantError: a bug in the simulator.
    """
    options, deployment = options or RunOptions(), deployment.numbered()
    decisions = _decision_log(deployment, options)
    env = Clock()
    log = SimulationLog(None if decisions is None else decisions.steps, options.watcher)
    reacts = len(deployment.pools) > 1 or bool(workload.clients) or bool(workload.phases)
    try:
        run = Running(env, deployment, log, options, clients_react=reacts)

        def submit(request: ScriptedRequest) -> None:
            if log.ends_warm_up(request.spec):
                for clock in run.clocks:
                    clock.forget()
            run.submit(request)

        start_traffic(env, workload, submit, log)
        run.run()
        built = log.builder.build(run.clocks, run.meta())
        if decisions is not None:
            decisions.close(built)
    finally:
        if decisions is not None:
            decisions.discard()
    return built


def _decision_log(deployment: Deployment, options: RunOptions) -> DecisionLog | None:
    if options.decisions is None:
        return None
    if len(deployment.pools) == 1:
        servers = deployment.pools[0].servers
        return DecisionLog(options.decisions, len(servers.latencies), servers.num_ranks)
    pools = logged_pools(deployment.meta(options.meta))
    return DecisionLog(options.decisions, deployment.num_ranks, pools=pools)
