"""When the replicas of a fleet that grows and shrinks were started and stopped."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from sim.runlog.columns import RunLog

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
    """What happened to the replicas of a run.

    Attributes:
        events: in order of time.
        gpus: GPUs of each replica, by number.
    """

    events: Sequence[FleetEvent]
    gpus: Sequence[int]

    @classmethod
    def of(cls, log: RunLog) -> "FleetLog | None":
        """That of a run; None: its replicas were all there from its beginning to its end."""
        found = log.meta.get(FLEET)
        if not isinstance(found, Mapping):
            return None
        events = [FleetEvent(t, replica, ReplicaState(s)) for t, replica, s in found["events"]]
        return cls(events, list(found["gpus"]))

    def to_meta(self) -> dict[str, Any]:
        """Plain JSON values, for the meta data of a run log."""
        events = [[event.t_ns, event.replica, event.state.value] for event in self.events]
        return {"events": events, "gpus": list(self.gpus)}

    def lines(self) -> Iterable[dict[str, Any]]:
        """The lines of a decision log."""
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
