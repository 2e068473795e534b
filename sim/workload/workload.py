"""Workloads: open-loop arrivals, closed-loop clients, phases of a benchmark and who sends them."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Int64
from sim.core.batch import OutputScript
from sim.core.request import RequestSpec
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

    For the client's first turn, `think_ns` counts from time 0, or from when the client begins. When
    the request is sent, that time replaces its `spec.arrival_ns`.

    Attributes:
        sub_agents: clients that begin side by side when the request is over; the next turn's pause
            begins when all of them have ended.
        needs_tool: the pause is a tool's work (`Tools`), not a person's.
    """

    def __init__(
        self,
        think_ns: int,
        request: ScriptedRequest,
        sub_agents: "tuple[Sequence[Turn], ...]" = (),
        needs_tool: bool = False,
    ) -> None:
        self.think_ns: Final = think_ns
        self.request: Final = request
        self.sub_agents: Final = sub_agents
        self.needs_tool: Final = needs_tool


class Tools:
    """A number of tools that clients share. A call that finds none free waits for its turn."""

    def __init__(self, num_tools: int) -> None:
        self._free_ns = [0] * num_tools

    def done_ns(self, asked_ns: int, work_ns: int) -> int:
        """When a call is done that is asked for at `asked_ns`; calls come in order of time."""
        done_ns = max(asked_ns, self._free_ns[0]) + work_ns
        heapq.heapreplace(self._free_ns, done_ns)
        return done_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGroup:
    """What the clients from number `first` to `end` share.

    Attributes:
        places: most clients under way at a time; when one has ended, the next begins. None: all
            begin at time 0.
        num_tools: tools for the turns that need one. None: as many as there are calls.
    """

    first: int
    end: int
    places: int | None = None
    num_tools: int | None = None


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
        groups: what some of the clients share; no client is in two of them.
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
    groups: Sequence[ClientGroup] = ()
    phases: Sequence[Phase] = ()
    notes: tuple[str, ...] = ()
    client: Mapping[str, object] | None = None


def listed(
    requests: Sequence[ScriptedRequest] = (),
    clients: Sequence[Sequence[Turn]] = (),
    phases: Sequence[Phase] = (),
    notes: tuple[str, ...] = (),
    groups: Sequence[ClientGroup] = (),
) -> Workload:
    """The workload of these requests, which are in order of arrival."""
    in_phases = sum(len(phase.turns) for phase in phases)
    return Workload(
        num_requests=len(requests) + sum(map(num_requests, clients)) + in_phases,
        arrivals=lambda: iter(requests),
        clients=clients,
        groups=groups,
        phases=phases,
        notes=notes,
    )


def every_request(workload: Workload) -> Iterator[ScriptedRequest]:
    """All requests: by arrival, then client by client, then phase by phase."""
    in_phases = (turn.request for phase in workload.phases for turn in phase.turns)
    return chain(workload.arrivals(), *map(client_requests, workload.clients), in_phases)


def lanes(workload: Workload) -> Iterator[tuple[Iterator[Sequence[Turn]], Tools | None]]:
    """For each client that may begin at once: it and those that follow it, and their tools.

    The places of a group share one iterator: whichever becomes free takes the group's next client.
    """
    clients, groups = workload.clients, workload.groups
    in_groups = set(chain(*(range(group.first, group.end) for group in groups)))
    for number, turns in enumerate(clients):
        if number not in in_groups:
            yield iter((turns,)), None
    for group in groups:
        tools = None if group.num_tools is None else Tools(group.num_tools)
        waiting = map(clients.__getitem__, range(group.first, group.end))
        num_clients = group.end - group.first
        for _ in range(min(num_clients, group.places or num_clients)):
            yield waiting, tools


def client_requests(turns: Iterable[Turn]) -> Iterator[ScriptedRequest]:
    """The requests of a client, those of its sub-agents after the one that started them."""
    for turn in turns:
        yield turn.request
        for sub_agent in turn.sub_agents:
            yield from client_requests(sub_agent)


def num_requests(turns: Iterable[Turn]) -> int:
    """How many requests a client and its sub-agents send."""
    return sum(1 + sum(map(num_requests, turn.sub_agents)) for turn in turns)


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
        if isinstance(index, slice):
            return [self._make(i) for i in range(self._num_items)[index]]
        return self._make(index if 0 <= index < self._num_items else range(self._num_items)[index])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Rows of a table that are sent one after the other: clients and their sub-agents.

    Attributes:
        offsets: chain c sends rows `offsets[c]` to `offsets[c + 1]`.
        think_ns: the pause before each row, as in `Turn`.
        parent_row: for each chain, the row whose answer starts it as a sub-agent; -1: it is a
            client. None: all are clients.
        needs_tool: the rows whose pause is a tool's. None: none of them.
        calls_tool: the rows whose answers end in a tool call. None: nothing is known of it.
    """

    offsets: Int64
    think_ns: Int64
    parent_row: Int64 | None = None
    needs_tool: NDArray[np.bool_] | None = None
    calls_tool: NDArray[np.bool_] | None = None

    def clients(self) -> Int64:
        """The numbers of the chains that are clients."""
        if self.parent_row is None:
            return np.arange(len(self.offsets) - 1)
        return np.flatnonzero(self.parent_row < 0)

    def started_by(self) -> dict[int, list[int]]:
        """The sub-agents that rows start."""
        started: dict[int, list[int]] = {}
        if self.parent_row is not None:
            for number in np.flatnonzero(self.parent_row >= 0).tolist():
                started.setdefault(self.parent_row.item(number), []).append(number)
        return started


def closed_loop(
    table: RequestTable,
    chains: Chains,
    notes: tuple[str, ...] = (),
    *,
    places: int | None = None,
    num_tools: int | None = None,
) -> Workload:
    """Clients with one request at a time, and those of their sub-agents. See `ClientGroup`."""
    started, numbers = chains.started_by(), chains.clients()
    needs_tool, think_ns, offsets = chains.needs_tool, chains.think_ns, chains.offsets
    calls_tool = chains.calls_tool

    def turn(row: int) -> Turn:
        sub_agents = tuple(map(turns_of, started.get(row, ())))
        is_tool = needs_tool is not None and bool(needs_tool[row])
        request = table.request(row, arrival_ns=0)
        if calls_tool is not None:
            request.spec.calls_tool = bool(calls_tool[row])
        return Turn(think_ns.item(row), request, sub_agents, is_tool)

    def turns_of(number: int) -> Sequence[Turn]:
        first, end = offsets.item(number), offsets.item(number + 1)
        return LazySequence(end - first, lambda place: turn(first + place))

    group = ClientGroup(first=0, end=len(numbers), places=places, num_tools=num_tools)
    return Workload(
        num_requests=len(think_ns),
        arrivals=lambda: iter(()),
        clients=LazySequence(len(numbers), lambda place: turns_of(numbers.item(place))),
        groups=() if places is None and num_tools is None else (group,),
        notes=notes,
    )
