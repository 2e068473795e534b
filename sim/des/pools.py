"""A simulation of several pools of servers: of prefill and decode servers, or of other hardware."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sim.des.autoscale.scaled import ScaledServers, joined_side
from sim.des.autoscale.scaler import Autoscale
from sim.des.clock import Clock
from sim.des.handover import DecodeLog, Handovers, PrefillLog
from sim.des.handover_check import check_handovers
from sim.des.routers.connect import connect
from sim.des.routers.router import Router
from sim.des.run import simulate
from sim.des.servers import Made, RunOptions, Servers
from sim.des.side import Target
from sim.des.traffic import SimulationLog, start_traffic
from sim.des.transfers.transfers import Transfers
from sim.engine.partner import BOTH, DECODE, PREFILL
from sim.engine.token_clock import TokenClock
from sim.runlog import RunLog
from sim.runlog.decisions import DecisionLog
from sim.runlog.fleet import FLEET, FleetEvent, FleetLog, ReplicaState
from sim.runlog.handovers import logged_pools
from sim.workload.workload import ScriptedRequest, Workload


class ServerPool(NamedTuple):
    """A pool of servers.

    Attributes:
        name: the pool's name.
        role: what its servers compute, see `sim.engine.partner`.
        servers: the servers.
        autoscale: how their number changes; there are latencies for the most that there may be.
            None: it does not change.
        gpus: GPUs of a server.
    """

    name: str
    role: str
    servers: Servers
    autoscale: Autoscale | None = None
    gpus: int = 1


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
    if len(pools) == 1:
        # Its log is that of a deployment without pools, to the byte.
        servers = pools[0].servers
        return simulate(
            workload,
            servers.config,
            servers.latencies,
            router=routers[pools[0].role],
            host=servers.host,
            num_front_ends=servers.num_front_ends,
            autoscale=pools[0].autoscale,
            options=options,
        )
    numbered = _numbered(pools)
    num_servers = sum(_num_ranks(pool) for pool in numbered)
    decisions = None
    if options.decisions is not None:
        known = logged_pools(_meta(numbered, options))
        decisions = DecisionLog(options.decisions, num_servers, pools=known)
    env = Clock()
    log = SimulationLog(None if decisions is None else decisions.steps, options.watcher)
    run = _Run(env, numbered, routers, log, handover)

    def submit(request: ScriptedRequest) -> None:
        if log.ends_warm_up(request.spec):
            for clock in run.clocks:
                clock.forget()
        run.submit(request)

    start_traffic(env, workload, submit, log)
    run.start_scaling()
    try:
        Made.joined(run.made).run(env)
        num_steps = sum(one.num_steps for made in run.made for one in made.replicas.values())
        meta = {**_meta(numbered, options), "simulated_steps": num_steps, **run.stats()}
        built = log.builder.build(run.clocks, meta)
        if decisions is not None:
            decisions.close(built)
    finally:
        if decisions is not None:
            decisions.discard()
    return built


def _num_ranks(pool: ServerPool) -> int:
    return len(pool.servers.latencies) * pool.servers.num_ranks


def _numbers(pool: ServerPool) -> list[int]:
    """Of the first rank of each server of a pool."""
    ranks = pool.servers.num_ranks
    return [pool.servers.first + index * ranks for index in range(len(pool.servers.latencies))]


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
        self.clocks: list[TokenClock] = []
        self._pools = pools
        self._fleets: dict[str, ScaledServers] = {}
        parts: dict[str, list[ScaledServers | Sequence[Target]]] = {}
        logs: dict[str, SimulationLog] = {BOTH: log}
        self._transfers = None
        handovers = adopt = None
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
            adopt = handovers.adopt
            logs |= {PREFILL: PrefillLog(log, handovers), DECODE: DecodeLog(log, handovers)}
        for pool in pools:
            servers, part = pool.servers, parts.setdefault(pool.role, [])
            # Servers react to each other at the very time at which something happens.
            if pool.autoscale is not None:
                scaled = self._fleets[pool.name] = ScaledServers(
                    env,
                    logs[pool.role],
                    servers,
                    pool.autoscale,
                    clients_react=True,
                    clocks=self.clocks,
                    numbers=_numbers(pool),
                    adopt=adopt,
                )
                self.made.append(scaled.made)
                part.append(scaled)
                continue
            made = servers.make(
                env,
                logs[pool.role],
                range(len(servers.latencies)),
                clients_react=True,
                and_check=None if handovers is None else partial(check_handovers, handovers),
            )
            self.made.append(made)
            self.clocks += made.clocks()
            entries = zip(_numbers(pool), made.entries.items(), strict=True)
            part.append([Target(made.replicas[i], entry, number) for number, (i, entry) in entries])
        for role, router in routers.items():
            replicas = [
                replica
                for pool, made in zip(pools, self.made, strict=True)
                if pool.role == role
                for replica in made.replicas.values()
            ]
            connect(router, replicas, env, logs[role])
        sides = {role: joined_side(routers[role], each) for role, each in parts.items()}
        if handovers is None:
            side = sides[BOTH]
            self.submit: Callable[[ScriptedRequest], None] = lambda request: side.choose(
                request.spec
            ).entry.submit(request)
        else:
            handovers.connect(sides[PREFILL], sides[DECODE])
            self.submit = handovers.submit

    def start_scaling(self) -> None:
        """Start the autoscalers; call it after the clients were started."""
        for fleet in self._fleets.values():
            fleet.start()

    def stats(self) -> dict[str, object]:
        """What the log says of transfers and of fleets."""
        return {**self._fleet_stats(), **self._transfer_stats()}

    def _fleet_stats(self) -> dict[str, object]:
        """When servers came and went; nothing if all were there from beginning to end."""
        if not self._fleets:
            return {}
        gpus = [0] * sum(_num_ranks(pool) for pool in self._pools)
        events = []
        for pool in self._pools:
            numbers = _numbers(pool)
            for number in numbers:
                gpus[number] = pool.gpus
            fleet = self._fleets.get(pool.name)
            if fleet is None:
                events += [FleetEvent(0, number, ReplicaState.UP) for number in numbers]
            else:
                events += fleet.fleet.events
        return {FLEET: FleetLog(sorted(events, key=lambda event: event.t_ns), gpus).to_meta()}

    def _transfer_stats(self) -> dict[str, object]:
        if self._transfers is None:
            return {}
        stats = self._transfers.stats()
        names = ("num_transfers", "num_bytes", "num_failed", "num_retries", "queue_ns", "total_ns")
        return {"transfers": {name: getattr(stats, name) for name in names}}
