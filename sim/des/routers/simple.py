"""Routers that look at no request: in turn, or by load."""

from collections.abc import Sequence

from sim.core.request import RequestSpec
from sim.des.routers.router import Replica, least_loaded


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
