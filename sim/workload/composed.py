"""Workloads made of others: those of several tenants at once, and the first requests of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import accumulate, islice

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


@dataclass(frozen=True, slots=True)
class FirstRequests:
    """At most `most` requests of a workload: those that are asked for first.

    When a client's turn is asked for depends on how long its answers take. Here only its pauses
    count. The phases of a benchmark come after everything else, one after the other.

    Attributes:
        whole: the workload.
        most: how many requests are kept, at least 1.
    """

    whole: Workload
    most: int

    @property
    def notes(self) -> tuple[str, ...]:
        return self.whole.notes

    @property
    def num_requests(self) -> int:
        return min(self.most, self.whole.num_requests)

    def arrivals(self) -> Iterator[ScriptedRequest]:
        return islice(self.whole.arrivals(), self._num_open_and_turns[0])

    def clients(self) -> Sequence[Sequence[Turn]]:
        kept = self._num_open_and_turns[1]
        return [turns[:number] for turns, number in zip(self.whole.clients(), kept, strict=True)]

    def phases(self) -> Sequence[Phase]:
        num_open, num_turns = self._num_open_and_turns
        room = self.most - num_open - sum(num_turns)
        phases = []
        for phase in self.whole.phases():
            phases.append(replace(phase, turns=phase.turns[:room]))
            room -= len(phases[-1].turns)
        return [phase for phase in phases if phase.turns]

    @property
    def _num_open_and_turns(self) -> tuple[int, list[int]]:
        """How many open-loop requests are kept, and how many turns of each client."""
        clients = self.whole.clients()
        # Number -1 stands for open-loop traffic, other numbers for clients.
        opened = ((arrival.spec.arrival_ns, -1) for arrival in self.whole.arrivals())
        turned = (_asked(turns, number) for number, turns in enumerate(clients))
        num_open, num_turns = 0, [0] * len(clients)
        for _, number in islice(merge(opened, *turned), self.most):
            if number < 0:
                num_open += 1
            else:
                num_turns[number] += 1
        return num_open, num_turns


def _asked(turns: Sequence[Turn], number: int) -> Iterator[tuple[int, int]]:
    """When each turn of a client is asked for if answers take no time, with the client's number."""
    return ((at_ns, number) for at_ns in accumulate(turn.think_ns for turn in turns))
