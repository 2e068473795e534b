"""What comes to a real server, by time: requests, and clients that give up."""

import heapq
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple, Protocol

from realrun.clock import WallClock
from sim.workload.senders import ClientSender, PhaseSender
from sim.workload.workload import ScriptedRequest, Workload


class GivenUp(NamedTuple):
    """The client of a request has gone."""

    rid: str


class IncomingTraffic(Protocol):
    """What comes to a server. Each decision sees exactly what came up to its own time."""

    @property
    def is_over(self) -> bool:
        """Nothing will come any more, unless a request that is served now ends."""
        ...

    def arrived(self, now_ns: int) -> Iterator[ScriptedRequest | GivenUp]:
        """What has come by `now_ns` and was not returned before, in order of time."""
        ...

    def over(self, rid: str, now_ns: int) -> None:
        """A request has ended."""
        ...

    def wait(self, clock: WallClock, until_ns: int | None) -> None:
        """Wait until something comes, at most until this time; None: however long it takes."""
        ...


class WorkloadTraffic:
    """A workload's requests by arrival time. At equal times open-loop requests come first.

    There is no thread that sends requests. The server asks which requests have arrived. Clients
    that give up go before arrivals of the same time.
    """

    def __init__(self, workload: Workload) -> None:
        self._arrivals = workload.arrivals()
        self._due: list[tuple[int, int, int, ScriptedRequest]] = []
        self._serial = count()
        self._clients = ClientSender(workload)
        self._sender = PhaseSender(workload.phases)
        self._of_phases: set[str] = set()
        self._live: set[str] = set()
        self._giving_up: list[tuple[int, str]] = []
        self._take_next_arrival()
        for request in self._clients.begin():
            self._push(request, is_turn=True)

    @property
    def is_over(self) -> bool:
        return self._next_arrival_ns is None

    @property
    def _next_arrival_ns(self) -> int | None:
        """When the next request arrives; None: none does, unless a running request ends."""
        times_ns = [self._due[0][0]] if self._due else []
        if (of_phases_ns := self._sender.next_ns) is not None:
            times_ns.append(of_phases_ns)
        return min(times_ns, default=None)

    def wait(self, clock: WallClock, until_ns: int | None) -> None:
        while self._giving_up and self._giving_up[0][1] not in self._live:
            heapq.heappop(self._giving_up)
        gives_up_ns = self._giving_up[0][0] if self._giving_up else None
        times_ns = [t for t in (until_ns, self._next_arrival_ns, gives_up_ns) if t is not None]
        if times_ns:
            clock.sleep_until(min(times_ns))

    def arrived(self, now_ns: int) -> Iterator[ScriptedRequest | GivenUp]:
        for request in self._arrived(now_ns):
            spec = request.spec
            yield from self._given_up(spec.arrival_ns)
            self._live.add(spec.rid)
            if spec.gives_up_ns is not None:
                heapq.heappush(self._giving_up, (spec.arrival_ns + spec.gives_up_ns, spec.rid))
            yield request
        yield from self._given_up(now_ns)

    def _arrived(self, now_ns: int) -> Iterator[ScriptedRequest]:
        while self._due and self._due[0][0] <= now_ns:
            _, is_turn, _, request = heapq.heappop(self._due)
            if not is_turn:
                self._take_next_arrival()
            yield request
        for request in self._sender.due(now_ns):
            self._of_phases.add(request.spec.rid)
            yield request

    def _given_up(self, now_ns: int) -> Iterator[GivenUp]:
        while self._giving_up and self._giving_up[0][0] <= now_ns:
            rid = heapq.heappop(self._giving_up)[1]
            if rid in self._live:
                yield GivenUp(rid)

    def over(self, rid: str, now_ns: int) -> None:
        """A request has ended: its closed-loop client or its phase, if any, sends the next one."""
        self._live.discard(rid)
        if rid in self._of_phases:
            self._of_phases.remove(rid)
            self._sender.over(now_ns)
        for request in self._clients.over(rid, now_ns):
            self._push(request, is_turn=True)

    def _take_next_arrival(self) -> None:
        request = next(self._arrivals, None)
        if request is not None:
            self._push(request, is_turn=False)

    def _push(self, request: ScriptedRequest, *, is_turn: bool) -> None:
        entry = (request.spec.arrival_ns, int(is_turn), next(self._serial), request)
        heapq.heappush(self._due, entry)
