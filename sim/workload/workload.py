"""Workloads: open-loop arrivals, closed-loop clients, phases of a benchmark and who sends them."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Int64
from sim.core.request import RequestSpec
from sim.engine.executor import OutputScript
from sim.workload import NEVER_GIVES_UP_NS, NO_PRIORITY
from sim.workload.prompts import ArrayPrompts, PromptColumn


class ScriptedRequest:
    """A request and what it will generate."""

    def __init__(
        self,
        spec: RequestSpec,
        script: OutputScript,
    ) -> None:
        self.spec: Final = spec
        self.script: Final = script

    def __repr__(self) -> str:
        return f"ScriptedRequest({self.spec!r}, {self.script!r})"

    def sent_at(self, arrival_ns: int) -> "ScriptedRequest":
        """The same request, with another time of arrival."""
        spec = self.spec.copy()
        spec.arrival_ns = arrival_ns
        return ScriptedRequest(spec, self.script)


class Turn:
    """One request of a closed-loop client, sent `think_ns` after its previous one finished.

    For the client's first turn, `think_ns` counts from time 0. When the request is sent, that time
    replaces its `spec.arrival_ns`.
    """

    def __init__(
        self,
        think_ns: int,
        request: ScriptedRequest,
    ) -> None:
        self.think_ns: Final = think_ns
        self.request: Final = request


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Requests that one program sends in order, of which at most `places` are under way at a time.

    Attributes:
        turns: the requests; `think_ns` of each is when it is asked for, counted from the phase's
            start; these times do not fall. It is sent as soon as it is asked for and a place is
            free.
        places: most requests under way; None: no limit.
        pause_ns: from the end of the phase before, or from time 0, to this phase's start.
        ticks: the times, counted from the phase's start, at which the program may send one request.
            A tick that finds no free place is lost. None: it may send at any time.
    """

    turns: Sequence[Turn]
    places: int | None
    pause_ns: int = 0
    ticks: Callable[[], Iterator[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """All traffic of a scenario. Every iteration over it yields equal requests.

    Attributes:
        num_requests: open-loop requests, closed-loop turns and requests of phases together.
        arrivals: begins to yield the open-loop requests in order of arrival. Equal times keep the
            order of the source.
        clients: closed-loop clients, each a sequence of turns.
        phases: phases of a benchmark, one after the other: each begins when all requests are over.
        notes: what a trace's reader estimated or left out, in sentences.
        client: what the figures of a benchmark's client depend on: `name`, `max_concurrency`,
            `request_rate`, `special_tokens`; from the start of its clock, when it asks for the
            first request (`first_asked_ns`) and when it has asked for the last and slept
            (`sending_ns`). None: it is no benchmark.
    """

    num_requests: int
    arrivals: Callable[[], Iterator[ScriptedRequest]]
    clients: Sequence[Sequence[Turn]] = ()
    phases: Sequence[Phase] = ()
    notes: tuple[str, ...] = ()
    client: Mapping[str, object] | None = None


def listed(
    requests: Sequence[ScriptedRequest] = (),
    clients: Sequence[Sequence[Turn]] = (),
    phases: Sequence[Phase] = (),
    notes: tuple[str, ...] = (),
) -> Workload:
    """The workload of these requests, which are in order of arrival."""
    in_phases = sum(len(phase.turns) for phase in phases)
    return Workload(
        num_requests=len(requests) + sum(map(len, clients)) + in_phases,
        arrivals=lambda: iter(requests),
        clients=clients,
        phases=phases,
        notes=notes,
    )


def every_request(workload: Workload) -> Iterator[ScriptedRequest]:
    """All requests: by arrival, then client by client, then phase by phase."""
    turns = chain(*workload.clients, *(phase.turns for phase in workload.phases))
    return chain(workload.arrivals(), (turn.request for turn in turns))


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


T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence that makes an item each time the item is asked for."""

    def __init__(self, num_items: int, make: Callable[[int], T]) -> None:
        self._num_items = num_items
        self._make = make

    def __len__(self) -> int:
        return self._num_items

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._num_items))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        chosen = range(self._num_items)[index]
        return self._make(chosen) if isinstance(chosen, int) else [self._make(i) for i in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTable:
    """Requests as columns of shape [num_rows]. A column is None if no request has a value.

    In `priorities`, `NO_PRIORITY` stands for no priority; in `gives_up_ns`, `NEVER_GIVES_UP_NS` for
    a client that waits for ever. `known_outputs` has the first tokens of each output.
    """

    rids: Sequence[str]
    prompts: PromptColumn
    output_tokens: Int64
    output_seeds: Int64
    max_new_tokens: Int64
    known_outputs: ArrayPrompts | None = None
    predicted_tokens: Int64 | None = None
    priorities: Int64 | None = None
    ignore_eos: NDArray[np.bool_] | None = None
    gives_up_ns: Int64 | None = None
    tenants: str | Sequence[str] = ""
    sessions: Sequence[str] | None = None

    def request(self, row: int, arrival_ns: int) -> ScriptedRequest:
        predicted, ignore_eos = self.predicted_tokens, self.ignore_eos
        spec = RequestSpec(
            rid=self.rids[row],
            arrival_ns=arrival_ns,
            prompt=self.prompts.prompt(row),
            max_new_tokens=self.max_new_tokens.item(row),
            priority=_known(self.priorities, row, NO_PRIORITY),
            ignore_eos=False if ignore_eos is None else ignore_eos.item(row),
            predicted_output_tokens=None if predicted is None else predicted.item(row),
            tenant=self.tenants if isinstance(self.tenants, str) else self.tenants[row],
            session="" if self.sessions is None else self.sessions[row],
            gives_up_ns=_known(self.gives_up_ns, row, NEVER_GIVES_UP_NS),
        )
        num_tokens, seed = self.output_tokens.item(row), self.output_seeds.item(row)
        if self.known_outputs is None:
            return ScriptedRequest(spec, OutputScript(num_tokens, seed))
        known_ids = self.known_outputs.prompt(row).ids
        return ScriptedRequest(spec, OutputScript(num_tokens, seed, known_ids))


def _known(column: Int64 | None, row: int, unknown: int) -> int | None:
    """The value of a row; None if it is `unknown`, or if there is no such column."""
    value: int = unknown if column is None else column.item(row)
    return None if value == unknown else value


def open_loop(table: RequestTable, arrival_ns: Int64, notes: tuple[str, ...] = ()) -> Workload:
    """Requests sent at given times. Requests with the same time keep the order of their rows."""
    in_order = bool(np.all(arrival_ns[1:] >= arrival_ns[:-1]))
    order = None if in_order else np.argsort(arrival_ns, kind="stable")

    def arrivals() -> Iterator[ScriptedRequest]:
        for place in range(len(arrival_ns)):
            row = place if order is None else order.item(place)
            yield table.request(row, arrival_ns.item(row))

    return Workload(num_requests=len(arrival_ns), arrivals=arrivals, notes=notes)


def closed_loop(
    table: RequestTable, think_ns: Int64, offsets: Int64, notes: tuple[str, ...] = ()
) -> Workload:
    """Clients with one request at a time. Client c sends rows `offsets[c]` to `offsets[c + 1]`."""

    def turn(row: int) -> Turn:
        return Turn(think_ns.item(row), table.request(row, arrival_ns=0))

    def client(number: int) -> Sequence[Turn]:
        first, end = offsets.item(number), offsets.item(number + 1)
        return LazySequence(end - first, lambda place: turn(first + place))

    return Workload(
        num_requests=len(think_ns),
        arrivals=lambda: iter(()),
        clients=LazySequence(len(offsets) - 1, client),
        notes=notes,
    )
