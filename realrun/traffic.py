"""The arrivals of a real run: open-loop requests, clients and phases, by arrival time."""

import heapq
from collections.abc import Iterator
from itertools import count

from sim.workload.phase_sender import PhaseSender
from sim.workload.workload import ScriptedRequest, Turn, Workload


class Traffic:
    """A workload's requests by arrival time. At equal times open-loop requests come first.

    There is no thread that sends requests. The server asks which requests have arrived, so each
    decision sees exactly the requests with an arrival time up to its own.
    """

    def __init__(self, workload: Workload) -> None:
        self._arrivals = workload.arrivals()
        self._due: list[tuple[int, int, int, ScriptedRequest]] = []
        self._serial = count()
        self._clients: dict[str, Iterator[Turn]] = {}
        self._sender = PhaseSender(workload.phases())
        self._of_phases: set[str] = set()
        self._take_next_arrival()
        for turns in workload.clients():
            self._send_next_turn(iter(turns), 0)

    @property
    def next_ns(self) -> int | None:
        """When the next request arrives.

        None if no request is left, or if all others wait for the end of a running request.
        """
        of_phases_ns = self._sender.next_ns
        if not self._due:
            return of_phases_ns
        return self._due[0][0] if of_phases_ns is None else min(self._due[0][0], of_phases_ns)

    def arrived(self, now_ns: int) -> Iterator[ScriptedRequest]:
        """The requests that have arrived by `now_ns` and were not returned before."""
        while self._due and self._due[0][0] <= now_ns:
            _, is_turn, _, request = heapq.heappop(self._due)
            if not is_turn:
                self._take_next_arrival()
            yield request
        for request in self._sender.due(now_ns):
            self._of_phases.add(request.spec.rid)
            yield request

    def over(self, rid: str, now_ns: int) -> None:
        """A request has ended: its closed-loop client or its phase, if any, sends the next one."""
        if rid in self._of_phases:
            self._of_phases.remove(rid)
            self._sender.over(now_ns)
        turns = self._clients.pop(rid, None)
        if turns is not None:
            self._send_next_turn(turns, now_ns)

    def _take_next_arrival(self) -> None:
        request = next(self._arrivals, None)
        if request is not None:
            self._push(request, is_turn=False)

    def _send_next_turn(self, turns: Iterator[Turn], now_ns: int) -> None:
        turn = next(turns, None)
        if turn is None:
            return
        self._clients[turn.request.spec.rid] = turns
        self._push(turn.request.sent_at(now_ns + turn.think_ns), is_turn=True)

    def _push(self, request: ScriptedRequest, *, is_turn: bool) -> None:
        entry = (request.spec.arrival_ns, int(is_turn), next(self._serial), request)
        heapq.heappush(self._due, entry)
