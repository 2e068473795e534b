"""A simulation of several pools of servers: of prefill and decode servers, or of other hardware."""

from sim.des.clock import Clock
from sim.des.deployment import Deployment, Running, deployment_meta, num_ranks, numbered
from sim.des.run import simulate
from sim.des.servers import Made, RunOptions
from sim.des.traffic import SimulationLog, start_traffic
from sim.runlog import RunLog
from sim.runlog.decisions import DecisionLog
from sim.runlog.handovers import logged_pools
from sim.workload.workload import ScriptedRequest, Workload


def simulate_pools(
    workload: Workload, deployment: Deployment, options: RunOptions | None = None
) -> RunLog:
    """Simulate until all requests of a workload have ended.

    Args:
        workload: the traffic.
        deployment: the servers.
        options: how to simulate; those of each pool's servers are the same.

    Raises:
        InputError: the decision log cannot be written.
        InvariantError: a bug in the simulator.
    """
    options = options or RunOptions()
    if len(deployment.pools) == 1:
        # Its log is that of a deployment without pools, to the byte.
        (pool,) = deployment.pools
        return simulate(
            workload,
            pool.servers.config,
            pool.servers.latencies,
            router=deployment.routers[pool.role],
            host=pool.servers.host,
            num_front_ends=pool.servers.num_front_ends,
            autoscale=pool.autoscale,
            options=options,
        )
    decisions = None
    if options.decisions is not None:
        pools = numbered(deployment.pools)
        num_servers = sum(num_ranks(pool) for pool in pools)
        known = logged_pools(deployment_meta(pools))
        decisions = DecisionLog(options.decisions, num_servers, pools=known)
    env = Clock()
    log = SimulationLog(None if decisions is None else decisions.steps, options.watcher)
    run = Running(env, deployment, log)

    def submit(request: ScriptedRequest) -> None:
        if log.ends_warm_up(request.spec):
            for clock in run.clocks:
                clock.forget()
        run.submit(request)

    start_traffic(env, workload, submit, log)
    run.start_scaling()
    try:
        Made.joined(run.made).run(env)
        built = log.builder.build(run.clocks, run.meta())
        if decisions is not None:
            decisions.close(built)
    finally:
        if decisions is not None:
            decisions.discard()
    return built
