"""Workloads: open-loop arrivals, closed-loop clients, phases of a benchmark."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from sim.core.request import RequestSpec
from sim.engine.executor import OutputScript


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
