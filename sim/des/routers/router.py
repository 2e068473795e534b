"""What a router is, and what it may know of a replica."""

from collections.abc import Sequence
from typing import Protocol

from sim.core.request import RequestSpec


class Replica(Protocol):
    """A server as its router sees it."""

    @property
    def num_unfinished(self) -> int:
        """Requests sent there that are not over: at the door, waiting or running."""
        ...


class Router(Protocol):
    """Chooses a replica for each arriving request, in order of arrival; serves one run."""

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        """The index of the replica that the request goes to. May keep it in mind.

        Args:
            spec: the request; `arrival_ns` is now.
            replicas: all there are, one or more, the same at every call. Not to be changed.
        """
        ...


def least_loaded(loads: Sequence[int]) -> int:
    """The index of the smallest load; of several, the first."""
    return loads.index(min(loads))


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        chosen = self._next % len(replicas)
        self._next = chosen + 1
        return chosen


class LeastLoaded:
    """The one with the fewest requests that are not over; of several, the first."""

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        return least_loaded([replica.num_unfinished for replica in replicas])
