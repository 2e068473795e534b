"""The servers of a deployment, of one kind or of several pools, and where its requests go."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sim.core.kv_bytes import KvBytes
from sim.des.autoscale.scaled import ScaledServers, joined_side
from sim.des.autoscale.scaler import Autoscale
from sim.des.clock import Clock
from sim.des.handover import DecodeLog, Handovers, PrefillLog
from sim.des.handover_check import check_handovers
from sim.des.replica import Replica
from sim.des.routers.connect import connect
from sim.des.routers.router import Router
from sim.des.servers import Made, Servers
from sim.des.side import Target
from sim.des.traffic import SimulationLog
from sim.des.transfers.transfers import Transfers
from sim.engine.core import EngineCore
from sim.engine.partner import BOTH, DECODE, PREFILL
from sim.engine.token_clock import TokenClock
from sim.runlog.fleet import FLEET, FleetEvent, FleetLog, ReplicaState
from sim.workload.workload import ScriptedRequest


class ServerPool(NamedTuple):
    """A pool of servers.

    Attributes:
        name: the pool's name.
        role: what its servers compute, see `sim.engine.partner`.
        servers: the servers.
        autoscale: how their number changes; there are latencies for the most that there may be.
            None: it does not change.
        gpus: GPUs of a server.
        received: of a pool of role `decode`: the KV of a request that a server gets.
    """

    name: str
    role: str
    servers: Servers
    autoscale: Autoscale | None = None
    gpus: int = 1
    received: KvBytes | None = None


class HandoverOptions(NamedTuple):
    """How requests get from prefill servers to decode servers; see `Handovers`.

    Attributes:
        transfers: makes the transfers of a run, from its clock, and by replica the number of ranks
            and what a decode server receives. A replica is named by the number of its first rank.
    """

    transfers: Callable[[Clock, Callable[[int], int], Callable[[int], KvBytes]], Transfers]
    message_ns: int
    after_prefill: bool
    chooses_late: bool


class Deployment(NamedTuple):
    """What serves the requests of a run.

    Attributes:
        pools: of role `both`; or of roles `prefill` and `decode`, at least one of each. In the log
            the servers of all pools are numbered in this order; ranks count as servers.
        routers: by role: chooses among the servers of all pools of that role. Use new ones for each
            run.
        handover: required with roles `prefill` and `decode`.
    """

    pools: Sequence[ServerPool]
    routers: Mapping[str, Router]
    handover: HandoverOptions | None = None

    @classmethod
    def of_one_kind(cls, servers: Servers, router: Router) -> "Deployment":
        """Servers that are all alike, without pools."""
        return cls([ServerPool("", BOTH, servers)], {BOTH: router})


class Running:
    """The servers of a deployment in a run, and where the run's requests go.

    Attributes:
        made: of each pool.
        clocks: of all engines, those of servers that come up later included.
    """

    def __init__(self, env: Clock, deployment: Deployment, log: SimulationLog) -> None:
        """Make the servers, which do nothing yet.

        Args:
            env: the clock.
            deployment: what serves.
            log: the run's log.
        """
        self.made: list[Made] = []
        self.clocks: list[TokenClock] = []
        pools = self._pools = numbered(deployment.pools)
        self._fleets: dict[str, ScaledServers] = {}
        parts: dict[str, list[ScaledServers | Sequence[Target]]] = {}
        logs: dict[str, SimulationLog] = {BOTH: log}
        self._transfers = None
        handovers = adopt = None
        if deployment.handover is not None:
            how = deployment.handover
            ranks = {number: pool.servers.num_ranks for pool in pools for number in _numbers(pool)}
            received = {
                number: pool.received
                for pool in pools
                for number in _numbers(pool)
                if pool.received is not None
            }
            self._transfers = how.transfers(env, ranks.__getitem__, received.__getitem__)
            handovers = Handovers(
                env,
                log,
                self._transfers,
                message_ns=how.message_ns,
                after_prefill=how.after_prefill,
                chooses_late=how.chooses_late,
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
        routers = deployment.routers
        for role, router in routers.items():
            connect(router, self._replicas(role), env, logs[role])
        sides = {role: joined_side(routers[role], each) for role, each in parts.items()}
        if handovers is None:
            side = sides[BOTH]
            self.submit: Callable[[ScriptedRequest], None] = lambda request: side.choose(
                request.spec
            ).entry.submit(request)
        else:
            handovers.connect(sides[PREFILL], sides[DECODE])
            self.submit = handovers.submit

    def _replicas(self, role: str | None = None) -> list[Replica]:
        """The servers of a role, or all, in the order of their numbers."""
        return [
            replica
            for pool, made in zip(self._pools, self.made, strict=True)
            if role in (None, pool.role)
            for replica in made.replicas.values()
        ]

    def start_servers(self) -> None:
        """Start the servers' processes; `Made.run` does so itself."""
        for replica in self._replicas():
            replica.start()

    def start_scaling(self) -> None:
        """Start the autoscalers; call it after the clients were started."""
        for fleet in self._fleets.values():
            fleet.start()

    def give_up(self, rid: str) -> None:
        """The client of a request gives up now, if the request has not ended."""
        # Decode servers first: a prefill server that gives a request up tells its decode server.
        for replica in reversed(self._replicas()):
            replica.give_up(rid)

    @property
    def engines(self) -> list[EngineCore]:
        """By number in the log."""
        return [engine for replica in self._replicas() for engine in replica.engines]

    @property
    def num_steps(self) -> int:
        """Steps that have ended."""
        return sum(replica.num_steps for replica in self._replicas())

    def meta(self) -> dict[str, object]:
        """The log's meta data; see `RunLog`."""
        meta = {**deployment_meta(self._pools), "simulated_steps": self.num_steps}
        return {**meta, **self._fleet_stats(), **self._transfer_stats()}

    def _fleet_stats(self) -> dict[str, object]:
        """When servers came and went; nothing if all were there from beginning to end."""
        if not self._fleets:
            return {}
        gpus = [0] * sum(num_ranks(pool) for pool in self._pools)
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


def num_ranks(pool: ServerPool) -> int:
    """The ranks of all servers of a pool."""
    return len(pool.servers.latencies) * pool.servers.num_ranks


def _numbers(pool: ServerPool) -> list[int]:
    """Of the first rank of each server of a pool."""
    ranks = pool.servers.num_ranks
    return [pool.servers.first + index * ranks for index in range(len(pool.servers.latencies))]


def numbered(pools: Sequence[ServerPool]) -> list[ServerPool]:
    """The pools, with the number of each one's first server or rank."""
    found: list[ServerPool] = []
    first = 0
    for pool in pools:
        found.append(pool._replace(servers=pool.servers._replace(first=first)))
        first += num_ranks(pool)
    return found


def deployment_meta(pools: Sequence[ServerPool]) -> dict[str, object]:
    """The log's meta data of numbered pools, but for what happened; see `RunLog`.

    One pool says what servers without pools say.
    """
    if len(pools) == 1:
        return pools[0].servers.meta()
    common = pools[0].servers.options.meta
    described = []
    for pool in pools:
        own = pool.servers.meta()
        described.append(
            {
                "name": pool.name,
                "role": pool.role,
                "first": pool.servers.first,
                **{key: value for key, value in own.items() if key not in common},
            }
        )
    replicas = sum(num_ranks(pool) for pool in pools)
    return {**common, "replicas": replicas, "pools": described}
