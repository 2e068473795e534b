"""A workload of requests that arrive when they arrived in a recorded run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sim.workload.workload import Phase, ScriptedRequest, Turn


@dataclass(frozen=True, slots=True)
class ArrivedWorkload:
    """Requests in order of arrival, at the times of a recorded run.

    It has no closed-loop clients and no phases: the times at which they sent are known.
    """

    requests: tuple[ScriptedRequest, ...]
    notes: tuple[str, ...] = ()

    @property
    def num_requests(self) -> int:
        return len(self.requests)

    def arrivals(self) -> Iterator[ScriptedRequest]:
        return iter(self.requests)

    def clients(self) -> Sequence[Sequence[Turn]]:
        return ()

    def phases(self) -> Sequence[Phase]:
        return ()
