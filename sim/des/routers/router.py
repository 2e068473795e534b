"""The interface of routers, and the two that ignore prompts: in turn, and least loaded."""

from collections.abc import Sequence
from typing import Protocol

from sim.core.request import RequestSpec


class Replica(Protocol):
    """What a router may know about a server."""

    @property
    def num_unfinished(self) -> int:
        """Requests that were sent to this replica and have not ended."""


class Router(Protocol):
    """Chooses a replica for each request, in order of arrival. Each run needs a new router."""

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        """The index of the replica that gets the request. The router may remember its choice.

        Args:
            spec: the request; its `arrival_ns` is the current time.
            replicas: all replicas, one or more, the same in every call; routers must not change
                them.
        """


def least_loaded(replicas: Sequence[Replica]) -> int:
    """The index of the replica with the fewest unfinished requests; the first one if equal."""
    loads = [replica.num_unfinished for replica in replicas]
    return loads.index(min(loads))


class RoundRobin:
    """Sends requests to the replicas in turn."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        chosen = self._next % len(replicas)
        self._next = chosen + 1
        return chosen


class LeastLoaded:
    """Sends each request to the replica with the fewest unfinished ones; the first if equal."""

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        return least_loaded(replicas)
