"""A simulation of several pools of servers: of prefill and decode servers, or of other hardware."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sim.des.clock import Clock
from sim.des.handover import DecodeLog, Handovers, PrefillLog, Side, Target
from sim.des.routers.router import Router, seen_replicas
from sim.des.servers import Made, RunOptions, Servers
from sim.des.traffic import SimulationLog, start_traffic
from sim.des.transfers.transfers import Transfers
from sim.engine.partner import BOTH, DECODE, PREFILL
from sim.runlog import RunLog
from sim.runlog.decisions import DecisionLog
from sim.runlog.handovers import logged_pools
from sim.workload.workload import ScriptedRequest, Workload


class ServerPool(NamedTuple):
    """A pool of servers.

    Attributes:
        name: the pool's name.
        role: what its servers compute, see `sim.engine.partner`.
        servers: the servers.
    """

    name: str
    role: str
    servers: Servers


class HandoverOptions(NamedTuple):
    """How requests get from prefill servers to decode servers; see `Handovers`.

    Attributes:
        transfers: makes the transfers of a run, from its clock and the numbers of ranks by
            replica, each named by the number of its first rank.
    """

    transfers: Callable[[Clock, Callable[[int], int]], Transfers]
    message_ns: int
    after_prefill: bool
    chooses_late: bool


def simulate_pools(
    workload: Workload,
    pools: Sequence[ServerPool],
    routers: Mapping[str, Router],
    *,
    handover: HandoverOptions | None = None,
    options: RunOptions | None = None,
) -> RunLog:
    """Simulate until all requests of a workload have ended.

    Args:
        workload: the traffic.
        pools: of role `both`; or of roles `prefill` and `decode`, at least one of each. In the log
            the servers of all pools are numbered in this order; ranks count as servers.
        routers: by role: chooses among the servers of all pools of that role. Use new ones for each
            run.
        handover: required with roles `prefill` and `decode`.
        options: see RunOptions.

    Raises:
        InputError: the decision log cannot be written.
        InvariantError: a bug in the simulator.
    """
    options = options or RunOptions()
    numbered = _numbered(pools)
    num_servers = sum(_num_ranks(pool) for pool in numbered)
    decisions = None
    if options.decisions is not None:
        known = logged_pools(_meta(numbered, options))
        decisions = DecisionLog(options.decisions, num_servers, pools=known)
    env = Clock()
    log = SimulationLog(None if decisions is None else decisions.steps, options.watcher)
    run = _Run(env, numbered, routers, log, handover)
    clocks = [clock for made in run.made for clock in made.clocks()]

    def submit(request: ScriptedRequest) -> None:
        if log.ends_warm_up(request.spec):
            for clock in clocks:
                clock.forget()
        run.submit(request)

    start_traffic(env, workload, submit, log)
    try:
        num_steps = Made.joined(run.made).run(env)
        meta = {**_meta(numbered, options), "simulated_steps": num_steps, **run.stats()}
        built = log.builder.build(clocks, meta)
        if decisions is not None:
            decisions.close(built)
    finally:
        if decisions is not None:
            decisions.discard()
    return built


def _num_ranks(pool: ServerPool) -> int:
    return len(pool.servers.latencies) * pool.servers.num_ranks


def _numbered(pools: Sequence[ServerPool]) -> list[ServerPool]:
    """The pools, with the number of each one's first server or rank."""
    numbered: list[ServerPool] = []
    first = 0
    for pool in pools:
        numbered.append(pool._replace(servers=pool.servers._replace(first=first)))
        first += _num_ranks(pool)
    return numbered


def _ranks_by_number(pools: Sequence[ServerPool]) -> Mapping[int, int]:
    """The number of ranks of each replica, by the number of its first rank."""
    return {
        servers.first + index * servers.num_ranks: servers.num_ranks
        for servers in [pool.servers for pool in pools]
        for index in range(len(servers.latencies))
    }


def _meta(pools: Sequence[ServerPool], options: RunOptions) -> dict[str, object]:
    described = []
    for pool in pools:
        own = pool.servers.meta()
        described.append(
            {
                "name": pool.name,
                "role": pool.role,
                "first": pool.servers.first,
                **{key: value for key, value in own.items() if key not in options.meta},
            }
        )
    replicas = sum(_num_ranks(pool) for pool in pools)
    return {**options.meta, "replicas": replicas, "pools": described}


class _Run:
    """The servers of a run, and where its requests go."""

    def __init__(
        self,
        env: Clock,
        pools: Sequence[ServerPool],
        routers: Mapping[str, Router],
        log: SimulationLog,
        handover: HandoverOptions | None,
    ) -> None:
        self.made: list[Made] = []
        targets: dict[str, list[Target]] = {}
        logs: dict[str, SimulationLog] = {BOTH: log}
        self._transfers = None
        handovers = None
        if handover is not None:
            self._transfers = handover.transfers(env, _ranks_by_number(pools).__getitem__)
            handovers = Handovers(
                env,
                log,
                self._transfers,
                message_ns=handover.message_ns,
                after_prefill=handover.after_prefill,
                chooses_late=handover.chooses_late,
            )
            logs |= {PREFILL: PrefillLog(log, handovers), DECODE: DecodeLog(log, handovers)}
        for pool in pools:
            servers = pool.servers
            # Servers react to each other at the very time at which something happens.
            made = servers.make(
                env, logs[pool.role], range(len(servers.latencies)), clients_react=True
            )
            self.made.append(made)
            targets.setdefault(pool.role, []).extend(
                Target(made.replicas[index], entry, servers.first + index * servers.num_ranks)
                for index, entry in made.entries.items()
            )
        sides = {
            role: Side(each, routers[role], seen_replicas(routers[role], [t.entry for t in each]))
            for role, each in targets.items()
        }
        if handovers is None:
            side = sides[BOTH]
            self.submit: Callable[[ScriptedRequest], None] = lambda request: side.choose(
                request.spec
            ).entry.submit(request)
        else:
            handovers.connect(sides[PREFILL], sides[DECODE])
            self.submit = handovers.submit

    def stats(self) -> dict[str, object]:
        """What the log says of transfers."""
        if self._transfers is None:
            return {}
        stats = self._transfers.stats()
        names = ("num_transfers", "num_bytes", "num_failed", "num_retries", "queue_ns", "total_ns")
        return {"transfers": {name: getattr(stats, name) for name in names}}
