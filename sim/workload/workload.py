"""What simulated clients do: open-loop arrivals, closed-loop clients, and how long outputs get."""

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

    For the client's first turn, `think_ns` counts from time 0. `request.spec.arrival_ns` is
    replaced by the time it is sent.
    """

    think_ns: int
    request: ScriptedRequest


class Workload(Protocol):
    """All traffic of a scenario. Re-iterable: every iteration yields equal requests."""

    @property
    def num_requests(self) -> int:
        """Open-loop requests and closed-loop turns together."""
        ...

    def arrivals(self) -> Iterator[ScriptedRequest]:
        """Open-loop requests by arrival; equal times keep the source's order."""
        ...

    def clients(self) -> Sequence[Sequence[Turn]]:
        """Closed-loop clients, each a sequence of turns; empty if the workload is open-loop."""
        ...
