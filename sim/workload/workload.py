"""The interface of workloads: open-loop arrivals, closed-loop clients, and scripted outputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sim.core.request import RequestSpec
from sim.engine.executor import OutputScript


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """A request and what it will generate."""

    spec: RequestSpec
    script: OutputScript


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a closed-loop client, sent `think_ns` after its previous one finished.

    For the client's first turn, `think_ns` counts from time 0. When the request is sent, that time
    replaces its `spec.arrival_ns`.
    """

    think_ns: int
    request: ScriptedRequest


class Workload(Protocol):
    """All traffic of a scenario. Every iteration over it yields equal requests."""

    @property
    def num_requests(self) -> int:
        """Open-loop requests and closed-loop turns together."""
        ...

    def arrivals(self) -> Iterator[ScriptedRequest]:
        """Open-loop requests in order of arrival. Equal times keep the order of the source."""
        ...

    def clients(self) -> Sequence[Sequence[Turn]]:
        """Closed-loop clients, each a sequence of turns; empty if the workload is open-loop."""
        ...
