"""Traffic of the user's own: `workload: module:Class` (docs/how-to/plug-in.md#workload).

All requests are made and checked before the run, so that every iteration yields the same.
"""

import operator
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sim.core.batch import OutputScript
from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt
from sim.core.units import MAX_TIME_NS, seconds_to_ns
from sim.user.objects import ClassKind, UserClass, UserObject, load_class, shown
from sim.workload import MAX_TOKENS
from sim.workload.kinds.context import BuildContext
from sim.workload.workload import ScriptedRequest, Turn, Workload, listed

WORKLOAD = ClassKind("workload", "Traffic", {})
# All requests are in memory at once. More than this come from a trace.
MAX_ITEMS = 10**6


class Traffic:
    """What the constructor of a user's workload is given, to make requests with.

    Attributes:
        folder: the scenario's folder, for files that the workload reads.
    """

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._num_made = 0
        self.folder: Path = context.base_dir

    def random(self, name: str) -> np.random.Generator:
        """Random numbers that follow from the scenario's seed; each name has its own."""
        return self._context.random.stream(name)

    def text(self) -> int:
        """A new endless text. Prompts share a prefix if they begin with the same text."""
        return self._context.streams.take(1)

    def request(
        self,
        prompt: int | Sequence[tuple[int, int]],
        output_tokens: int,
        *,
        arrival_s: float = 0.0,
        **fields: Any,
    ) -> ScriptedRequest:
        """A request.

        Args:
            prompt: how many tokens of its own the prompt has; or its parts in order, each a text
                and how many tokens of it.
            output_tokens: how many tokens the request will generate.
            arrival_s: when it is sent. A closed-loop client sends its requests by `turn` instead.
            fields: further fields of `RequestSpec`: `rid` (else a number), `tenant`, `session`,
                `priority`, `predicted_output_tokens`, `ignore_eos`, `calls_tool`, and
                `max_new_tokens` (else `output_tokens`).
        """
        parts = [(self.text(), prompt)] if isinstance(prompt, int | np.integer) else prompt
        segments = tuple((operator.index(text), operator.index(num)) for text, num in parts)
        num_output = operator.index(output_tokens)
        fields = {"rid": str(self._num_made), "max_new_tokens": num_output, **fields}
        self._num_made += 1
        spec = RequestSpec(
            arrival_ns=seconds_to_ns(float(arrival_s)), prompt=SegmentPrompt(segments), **fields
        )
        return ScriptedRequest(spec, OutputScript(num_output, self.text()))

    def turn(self, request: ScriptedRequest, *, think_s: float = 0.0) -> Turn:
        """A turn of a closed-loop client, sent so long after the answer to its previous one."""
        return Turn(seconds_to_ns(float(think_s)), request)


def user_workload(user: UserObject) -> Workload:
    """The requests that a user's class made, in order of arrival."""
    checker = _Checker(user)
    notes = user.get("notes", ())
    notes = notes if isinstance(notes, list | tuple) else ()
    if not (user.has("arrivals") or user.has("clients")):
        raise user.loaded.refuse("it needs a method arrivals(self) or clients(self)")
    workload = listed(
        sorted(checker.requests("arrivals"), key=lambda request: request.spec.arrival_ns),
        checker.turns("clients"),
        notes=tuple(note for note in notes if isinstance(note, str)),
    )
    if not workload.num_requests:
        raise user.loaded.fail(f"{user.loaded.name} has no requests")
    return workload


class _Checker:
    """Takes what a user's methods yield, and refuses what no server can be sent."""

    def __init__(self, user: UserObject) -> None:
        self._user = user
        self._rids: set[str] = set()

    def requests(self, method: str) -> list[ScriptedRequest]:
        return [self._checked(method, each) for each in self._yielded(method)]

    def turns(self, method: str) -> list[list[Turn]]:
        clients = []
        for turns in self._yielded(method):
            if not isinstance(turns, list | tuple):
                raise self._user.returned(method, "a client that is no list of turns")
            for turn in turns:
                if not isinstance(turn, Turn):
                    raise self._user.returned(method, f"{type(turn).__name__}, not a Turn")
                self._check_time(method, "thinks", turn.think_ns)
                self._checked(method, turn.request)
            clients.append(list(turns))
        return clients

    def _yielded(self, method: str) -> list[Any]:
        if not self._user.has(method):
            return []
        # Inside the guard, because a generator raises while it is read.
        with self._user.loaded.guarded(method):
            items = getattr(self._user.instance, method)()
            if not isinstance(items, Iterable):
                items = None
            found = None if items is None else list(islice(items, MAX_ITEMS + 1))
        if found is None or len(found) > MAX_ITEMS:
            what = "nothing to iterate over" if found is None else f"more than {MAX_ITEMS:,} items"
            raise self._user.returned(method, what)
        return found

    def _checked(self, method: str, request: object) -> ScriptedRequest:
        if not isinstance(request, ScriptedRequest):
            raise self._user.returned(method, f"{type(request).__name__}, not a request")
        with self._user.loaded.guarded(method):
            spec = request.spec
            rid, arrival_ns = spec.rid, spec.arrival_ns
            sizes = {
                "a prompt": len(spec.prompt),
                "an output": request.script.num_tokens,
                "max_new_tokens": spec.max_new_tokens,
            }
        if not isinstance(rid, str) or not rid or rid in self._rids:
            raise self._user.returned(method, f"rid {shown(rid)} twice, or no text")
        self._rids.add(rid)
        self._check_time(method, "arrives", arrival_ns)
        for what, size in sizes.items():
            if type(size) is not int or not 1 <= size <= MAX_TOKENS:
                raise self._user.returned(
                    method, f"{what} of {shown(size)} tokens, not 1 to {MAX_TOKENS:,}"
                )
        return request

    def _check_time(self, method: str, what: str, time_ns: object) -> None:
        if type(time_ns) is not int or not 0 <= time_ns <= MAX_TIME_NS:
            raise self._user.returned(method, f"a request that {what} at {shown(time_ns)} ns")


def build_user_workload(named: UserClass, context: BuildContext) -> Workload:
    """Load the class and make all of its requests."""
    loaded = load_class(named, WORKLOAD, key=context.key, folder=context.base_dir)
    return user_workload(loaded.make(Traffic(context)))
