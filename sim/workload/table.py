"""Requests as columns, and the open-loop and closed-loop workloads made of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Int64
from sim.core.request import RequestSpec
from sim.engine.executor import OutputScript
from sim.workload import NEVER_GIVES_UP_NS, NO_PRIORITY
from sim.workload.prompts import ArrayPrompts, PromptColumn
from sim.workload.workload import ScriptedRequest, Turn, Workload

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
