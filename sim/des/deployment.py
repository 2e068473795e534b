"""What serves the requests of a run: servers that are alike, or pools of them, and routers."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sim.des.autoscale.scaler import Autoscale
from sim.des.clock import Clock
from sim.des.routers.router import RoundRobin, Router
from sim.des.servers import Servers
from sim.des.transfers.transfers import Transfers
from sim.engine.server_config import BOTH, ServerConfig
from sim.latency.host import HostSection
from sim.latency.kv_memory import KvBytes
from sim.latency.model import ReplicaLatency


class ServerPool(NamedTuple):
    """A pool of servers.

    Attributes:
        name: the pool's name; empty if there are no pools.
        role: what its servers compute, see `sim.engine.server_config`.
        autoscale: how their number changes; there are latencies for the most that there may be.
            None: it does not change.
        gpus: GPUs of each server.
        received: of a pool of role `decode`: the KV of a request that a server gets.
    """

    name: str
    role: str
    servers: Servers
    autoscale: Autoscale | None = None
    gpus: int = 1
    received: KvBytes | None = None

    @property
    def num_ranks(self) -> int:
        """The ranks of all servers; a server without ranks counts as one."""
        return len(self.servers.latencies) * self.servers.num_ranks

    @property
    def numbers(self) -> list[int]:
        """The number in the log of the first rank of each server."""
        return [self.servers.number(index) for index in range(len(self.servers.latencies))]


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
            run, because a router may have state.
        handover: required with roles `prefill` and `decode`.
    """

    pools: Sequence[ServerPool]
    routers: Mapping[str, Router]
    handover: HandoverOptions | None = None

    @classmethod
    def of_servers(
        cls, servers: Servers, router: Router | None = None, autoscale: Autoscale | None = None
    ) -> "Deployment":
        """Servers that are all alike, without pools.

        Without a `router`: round robin. With `autoscale` there are latencies for the most servers
        that there may be.
        """
        gpus = 1 if autoscale is None else autoscale.gpus
        pool = ServerPool("", BOTH, servers, autoscale, gpus)
        return cls([pool], {BOTH: router or RoundRobin()})

    @classmethod
    def of_one_kind(
        cls,
        config: ServerConfig,
        latencies: Sequence[ReplicaLatency],
        *,
        router: Router | None = None,
        host: HostSection | None = None,
        num_front_ends: int = 1,
        autoscale: Autoscale | None = None,
    ) -> "Deployment":
        """As `of_servers`; the other arguments are the attributes of `Servers`."""
        return cls.of_servers(Servers(config, latencies, host, num_front_ends), router, autoscale)

    def numbered(self) -> "Deployment":
        """The same, with the number of each pool's first server or rank."""
        found: list[ServerPool] = []
        first = 0
        for pool in self.pools:
            found.append(pool._replace(servers=pool.servers._replace(first=first)))
            first += pool.num_ranks
        return self._replace(pools=found)

    @property
    def num_ranks(self) -> int:
        """The ranks of all servers of all pools."""
        return sum([pool.num_ranks for pool in self.pools])

    def meta(self, common: Mapping[str, object]) -> dict[str, object]:
        """The log's meta data of numbered pools, but for what happened; see `RunLog`.

        A single pool is described as servers without pools are. `common` is what the log says
        beside the servers.
        """
        if len(self.pools) == 1:
            return {**common, **self.pools[0].servers.meta()}
        described = [
            {
                "name": pool.name,
                "role": pool.role,
                "first": pool.servers.first,
                **pool.servers.meta(),
            }
            for pool in self.pools
        ]
        return {**common, "replicas": self.num_ranks, "pools": described}
