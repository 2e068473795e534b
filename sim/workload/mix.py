"""The workloads of several tenants as one workload."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate

from sim.workload.table import LazySequence
from sim.workload.workload import Phase, ScriptedRequest, Turn, Workload


@dataclass(frozen=True, slots=True)
class TenantWorkload:
    """Gives a workload's requests a tenant. Their ids and session ids begin with its name."""

    tenant: str
    workload: Workload

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"{self.tenant}: {note}" for note in self.workload.notes)

    @property
    def num_requests(self) -> int:
        return self.workload.num_requests

    def arrivals(self) -> Iterator[ScriptedRequest]:
        return map(self._labelled, self.workload.arrivals())

    def clients(self) -> Sequence[Sequence[Turn]]:
        clients = self.workload.clients()
        return LazySequence(len(clients), lambda client: self._labelled_turns(clients[client]))

    def phases(self) -> Sequence[Phase]:
        return ()

    def _labelled(self, request: ScriptedRequest) -> ScriptedRequest:
        spec, tenant = request.spec.copy(), self.tenant
        if spec.session:
            spec.session = f"{tenant}-{spec.session}"
        spec.rid, spec.tenant = f"{tenant}-{spec.rid}", tenant
        return ScriptedRequest(spec, request.script)

    def _labelled_turns(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        return LazySequence(len(turns), lambda index: self._labelled_turn(turns[index]))

    def _labelled_turn(self, turn: Turn) -> Turn:
        return Turn(turn.think_ns, self._labelled(turn.request))


@dataclass(frozen=True, slots=True)
class MixedWorkload:
    """All parts at once. Requests that arrive at the same time keep the order of the parts."""

    parts: tuple[Workload, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(note for part in self.parts for note in part.notes)

    @property
    def num_requests(self) -> int:
        return sum(part.num_requests for part in self.parts)

    def arrivals(self) -> Iterator[ScriptedRequest]:
        # heapq.merge keeps the order of its inputs where keys are equal.
        return merge(*(part.arrivals() for part in self.parts), key=_arrival_ns)

    def clients(self) -> Sequence[Sequence[Turn]]:
        groups = [part.clients() for part in self.parts]
        ends = list(accumulate(len(group) for group in groups))

        def client(index: int) -> Sequence[Turn]:
            part = next(i for i, end in enumerate(ends) if index < end)
            return groups[part][index - ends[part]]

        return LazySequence(ends[-1] if ends else 0, client)

    def phases(self) -> Sequence[Phase]:
        return ()


def _arrival_ns(request: ScriptedRequest) -> int:
    return request.spec.arrival_ns
