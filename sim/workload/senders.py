"""Senders say which request is sent when: of clients that wait for answers, and of phases."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from sim.workload.workload import Phase, ScriptedRequest, Tools, Turn, Workload, lanes


class _Client:
    """A client under way: the turns that are left, and who goes on when it ends.

    That is its parent, once all of the parent's sub-agents have ended, or the next of `waiting`.
    """

    def __init__(
        self,
        turns: Iterable[Turn],
        tools: Tools | None,
        waiting: Iterator[Sequence[Turn]],
        parent: "_Client | None" = None,
    ) -> None:
        self.turns = iter(turns)
        self.tools, self.waiting, self.parent = tools, waiting, parent
        self.num_awaited = 0


class ClientSender:
    """Sends the requests of a workload's clients, each with its time as `arrival_ns`."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._under_way: dict[str, tuple[_Client, Turn]] = {}

    def begin(self) -> Iterator[ScriptedRequest]:
        """The first requests of the clients that begin at once."""
        for waiting, tools in lanes(self._workload):
            yield from self._next(_Client((), tools, waiting), 0)

    def over(self, rid: str, now_ns: int) -> Iterator[ScriptedRequest]:
        """What is sent because a request has ended; nothing if it was no client's."""
        known = self._under_way.pop(rid, None)
        if known is None:
            return
        client, turn = known
        client.num_awaited = len(turn.sub_agents)
        for turns in turn.sub_agents:
            yield from self._next(_Client(turns, client.tools, iter(()), client), now_ns)
        if not turn.sub_agents:
            yield from self._next(client, now_ns)

    def _next(self, client: _Client, now_ns: int) -> Iterator[ScriptedRequest]:
        turn = next(client.turns, None)
        if turn is not None:
            at_ns = now_ns + turn.think_ns
            if turn.needs_tool and client.tools is not None:
                at_ns = client.tools.done_ns(now_ns, turn.think_ns)
            self._under_way[turn.request.spec.rid] = client, turn
            yield turn.request.sent_at(at_ns)
        elif client.parent is not None:
            client.parent.num_awaited -= 1
            if not client.parent.num_awaited:
                yield from self._next(client.parent, now_ns)
        elif (turns := next(client.waiting, None)) is not None:
            yield from self._next(_Client(turns, client.tools, client.waiting), now_ns)


class PhaseSender:
    """Sends the requests of phases in order, each as soon as its phase allows.

    Ask `due` whenever the time is `next_ns`, and after each `over`.
    """

    def __init__(self, phases: Sequence[Phase]) -> None:
        self._phases = iter(phases)
        self._turns: Iterator[Turn] = iter(())
        self._ticks: Iterator[int] | None = None
        # When each free place got free; None: places without end.
        self._free_ns: deque[int] | None = None
        self._start_ns = self._tick_ns = self._last_over_ns = 0
        self._num_under_way = 0
        self._next: Turn | None = None
        self._begin_phase()

    @property
    def next_ns(self) -> int | None:
        """When a request may be sent next; None: not before one is over, or never."""
        if self._next is None:
            return None
        if self._ticks is not None:
            return self._tick_ns
        asked_ns = self._start_ns + self._next.think_ns
        if self._free_ns is None:
            return asked_ns
        return max(asked_ns, self._free_ns[0]) if self._free_ns else None

    def due(self, now_ns: int) -> Iterator[ScriptedRequest]:
        """The requests to send up to now, each with its time as `arrival_ns`."""
        while (at_ns := self.next_ns) is not None and at_ns <= now_ns:
            has_place = self._free_ns is None or bool(self._free_ns)
            if self._ticks is not None:
                self._tick_ns = self._start_ns + next(self._ticks)
            if has_place:
                yield self._take(at_ns)

    def over(self, now_ns: int) -> None:
        """One of the requests has finished, or was rejected or aborted."""
        self._num_under_way -= 1
        self._last_over_ns = now_ns
        if self._free_ns is not None:
            self._free_ns.append(now_ns)
        if self._next is None and not self._num_under_way:
            self._begin_phase()

    def _take(self, at_ns: int) -> ScriptedRequest:
        turn = self._next
        assert turn is not None  # noqa: S101 - next_ns says so
        if self._free_ns is not None:
            self._free_ns.popleft()
        self._num_under_way += 1
        self._next = next(self._turns, None)
        return turn.request.sent_at(at_ns)

    def _begin_phase(self) -> None:
        """Begin the next phase that has requests."""
        for phase in self._phases:
            self._start_ns = self._last_over_ns + phase.pause_ns
            self._turns = iter(phase.turns)
            self._next = next(self._turns, None)
            if self._next is None:
                continue
            self._ticks = None if phase.ticks is None else phase.ticks()
            if self._ticks is not None:
                self._tick_ns = self._start_ns + next(self._ticks)
            places = phase.places
            self._free_ns = None
            if places is not None:
                self._free_ns = deque([self._start_ns] * min(places, len(phase.turns)))
            return
