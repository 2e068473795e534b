"""What a run log says of its servers: pools, handovers, and replicas that come and go."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, NamedTuple

from sim.core.arrays import Bools, Int64
from sim.engine.server_config import BOTH, PREFILL


@dataclass(frozen=True, slots=True)
class HandoverColumns:
    """How each request of a log got from its prefill server to its decode server.

    There is one row for each request, in the order of `RequestColumns`. Times are ns since the
    start of the run; `NOT_YET_NS` means that the event never happened.

    Attributes:
        prefill_replica: its prefill server, or the first rank of it; -1: it was rejected before.
        allocated_ns: its decode server had allocated memory for its prompt.
        computed_ns: its whole prompt was computed.
        received_ns: all its KV had arrived at its decode server.
        sent_tokens: tokens of its prompt whose KV was sent: all but those cached there.
    """

    prefill_replica: Int64
    allocated_ns: Int64
    computed_ns: Int64
    received_ns: Int64
    sent_tokens: Int64

    def rows(self, mask: Bools) -> "HandoverColumns":
        """The requests where `mask`, of shape [num_requests], is true."""
        return HandoverColumns(*(getattr(self, column.name)[mask] for column in fields(self)))


class LoggedPool(NamedTuple):
    """A server pool of a run.

    Attributes:
        role: what its servers compute, see `sim.engine.server_config`.
        first: number of its first server, or rank of one, in the log.
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
    pools = []
    known = ("name", "role", "first", "replicas", "ranks")
    for described in meta.get("pools", ()):
        name, role, first, replicas = (described[key] for key in known[:4])
        more = {key: value for key, value in described.items() if key not in known}
        pools.append(LoggedPool(name, role, first, replicas, described.get("ranks", 1), more))
    return tuple(pools)


FLEET = "fleet"


class ReplicaState(Enum):
    """What a replica does from an event on.

    A replica that drains takes no more requests. A stopped one has no GPUs any more.
    """

    STARTING = "starting"
    UP = "up"
    DRAINING = "draining"
    STOPPED = "stopped"


class FleetEvent(NamedTuple):
    """A replica changed its state."""

    t_ns: int
    replica: int
    state: ReplicaState


class ReplicaSpan(NamedTuple):
    """A time in which a replica was in some states, `end_ns` not included."""

    replica: int
    begin_ns: int
    end_ns: int


class FleetLog(NamedTuple):
    """What happened to the replicas of a run; `gpus` has the GPUs of each, by its number."""

    events: Sequence[FleetEvent]
    gpus: Sequence[int]

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> "FleetLog | None":
        """That of a log's meta data; None: all replicas were there from beginning to end."""
        found = meta.get(FLEET)
        if not isinstance(found, Mapping):
            return None
        events = [FleetEvent(t, replica, ReplicaState(s)) for t, replica, s in found["events"]]
        return cls(events, list(found["gpus"]))

    def to_meta(self) -> dict[str, Any]:
        """Plain JSON values, for the meta data of a run log."""
        events = [[event.t_ns, event.replica, event.state.value] for event in self.events]
        return {"events": events, "gpus": list(self.gpus)}

    def lines(self) -> Iterable[dict[str, Any]]:
        for t_ns, replica, state in self.events:
            yield {"kind": FLEET, "replica": replica, "t_ns": t_ns, "state": state.value}

    def spans(self, states: Iterable[ReplicaState], end_ns: int) -> list[ReplicaSpan]:
        """Where replicas were in any of these states, up to `end_ns`, in order of their end."""
        begun: dict[int, int] = {}
        spans = []
        for event in self.events:
            if event.state in states:
                begun.setdefault(event.replica, event.t_ns)
            elif event.replica in begun:
                spans.append(ReplicaSpan(event.replica, begun.pop(event.replica), event.t_ns))
        spans += [
            ReplicaSpan(replica, begin_ns, end_ns) for replica, begin_ns in sorted(begun.items())
        ]
        cut = (ReplicaSpan(one.replica, one.begin_ns, min(one.end_ns, end_ns)) for one in spans)
        return [span for span in cut if span.begin_ns < span.end_ns]


# A replica holds its GPUs in all states but `STOPPED`.
HELD = (ReplicaState.STARTING, ReplicaState.UP, ReplicaState.DRAINING)
# It has requests in these.
SERVING = (ReplicaState.UP, ReplicaState.DRAINING)
