"""Requests that arrive when they did in a run that is over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.workload.workload import ScriptedRequest, Turn


@dataclass(frozen=True, slots=True)
class ArrivedWorkload:
    """Requests at their times of arrival in that run, in its order.

    Closed-loop clients are gone: when they sent their requests is known.
    """

    requests: tuple[ScriptedRequest, ...]

    @property
    def num_requests(self) -> int:
        return len(self.requests)

    def arrivals(self) -> Iterator[ScriptedRequest]:
        return iter(self.requests)

    def clients(self) -> Sequence[Sequence[Turn]]:
        return ()
