"""What a run log says of prefill and decode servers: its pools, and each request's handover."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from sim.core.arrays import Bools, Int64
from sim.engine.partner import BOTH, PREFILL


@dataclass(frozen=True, slots=True)
class HandoverColumns:
    """How each request of a log got from its prefill server to its decode server.

    There is one row for each request, in the order of `RequestColumns`. Times are ns since the
    start of the run; `NOT_YET_NS` means that the event never happened.

    Attributes:
        prefill_replica: its prefill server, or the first rank of it; -1: it was rejected before.
        room_ns: its decode server had allocated memory for its prompt.
        computed_ns: its whole prompt was computed.
        received_ns: all its KV had arrived at its decode server.
        sent_tokens: tokens of its prompt whose KV was sent: all but those cached there.
    """

    prefill_replica: Int64
    room_ns: Int64
    computed_ns: Int64
    received_ns: Int64
    sent_tokens: Int64

    def rows(self, mask: Bools) -> "HandoverColumns":
        """The requests where `mask`, of shape [num_requests], is true."""
        return HandoverColumns(*(getattr(self, column.name)[mask] for column in fields(self)))


class LoggedPool(NamedTuple):
    """A server pool of a run.

    Attributes:
        name: the pool's name.
        role: what its servers compute, see `sim.engine.partner`.
        first: number of its first server, or rank of one, in the log.
        num_replicas: its servers.
        num_ranks: ranks of each server.
        meta: what else the log's meta data say of its servers.
    """

    name: str
    role: str
    first: int
    num_replicas: int
    num_ranks: int
    meta: Mapping[str, Any]

    @property
    def num_servers(self) -> int:
        """Numbers of the log that are its servers, or their ranks."""
        return self.num_replicas * self.num_ranks

    @property
    def end(self) -> int:
        """The number after its last one."""
        return self.first + self.num_servers

    @property
    def micro_batches(self) -> int:
        """How many steps of a server may overlap."""
        return int(self.meta.get("micro_batches", 1))

    @property
    def title(self) -> str:
        """`east (prefill)`; the name alone if it is that of the role, or if all are alike."""
        return self.name if self.role in {BOTH, self.name} else f"{self.name} ({self.role})"

    def has(self, number: int) -> bool:
        """Whether this number of the log is one of its servers."""
        return self.first <= number < self.end

    def mask(self, numbers: Int64) -> Bools:
        """Which of these numbers of the log are its servers."""
        return (numbers >= self.first) & (numbers < self.end)

    def requests(self, replica: Int64, handovers: HandoverColumns | None) -> Bools:
        """Which requests its servers computed a part of; `replica` is the log's column."""
        if self.role == PREFILL and handovers is not None:
            return self.mask(handovers.prefill_replica)
        return self.mask(replica)


def logged_pools(meta: Mapping[str, Any]) -> tuple[LoggedPool, ...]:
    """The server pools that a run's meta data describe; none if its servers are all alike."""
    return tuple(_pools(meta.get("pools", ())))


def _pools(described: Any) -> Iterator[LoggedPool]:
    for one in described:
        known = ("name", "role", "first", "replicas", "ranks")
        name, role, first, replicas = (one[key] for key in known[:4])
        more = {key: value for key, value in one.items() if key not in known}
        yield LoggedPool(name, role, first, replicas, one.get("ranks", 1), more)
