"""The beginning of a workload: its first requests, for a quick look."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import accumulate, islice

from sim.workload.workload import Phase, ScriptedRequest, Turn, Workload


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
