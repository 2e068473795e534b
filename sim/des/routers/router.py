"""The interface of routers, and the simplest: in turn, least loaded, and those that draw.

Routers that draw are the policies `power_of_two` and `random` of SGLang's gateway (0.3.2).
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from sim.core.errors import InputError
from sim.core.request import RequestSpec


class RoutedReplica(Protocol):
    """What a router may know about a server."""

    @property
    def num_unfinished(self) -> int:
        """Requests that were sent to this replica and have not ended."""


class Router(Protocol):
    """Chooses a replica for each request, in order of arrival. Each run needs a new router.

    Where the number of replicas changes, a router that remembers replicas by their indices has a
    method `changed` (`tell_changed`).

    A router that never reads the load of a replica says so with an attribute `looks_at_loads`,
    which is False. Its choices depend on the requests alone, so each replica can be simulated
    on its own.
    """

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        """The index of the replica that gets the request. The router may remember its choice.

        Args:
            spec: the request; its `arrival_ns` is the current time.
            replicas: all replicas that take requests, one or more; routers must not change them.
                They are the same in every call until `changed` is called.
        """


class HiddenReplica:
    """What a router sees of a replica if it says that it looks at no loads."""

    @property
    def num_unfinished(self) -> int:
        raise InputError("reads num_unfinished, but says looks_at_loads = False", key=("router",))


def looks_at_loads(router: Router) -> bool:
    """Whether the router's choices may depend on what the replicas do."""
    return bool(getattr(router, "looks_at_loads", True))


def seen_replicas(router: Router, replicas: Sequence[RoutedReplica]) -> Sequence[RoutedReplica]:
    """What the router is shown of these replicas."""
    return replicas if looks_at_loads(router) else [HiddenReplica()] * len(replicas)


def tell_changed(router: Router, kept: Sequence[int]) -> None:
    """Tell a router that from now on it chooses from other replicas.

    Args:
        router: if it has a method `changed`, that is called with `kept`.
        kept: for each replica, the index that it had before; -1: it is new, and its cache is empty.
            Replicas that are not in it have left.
    """
    changed = getattr(router, "changed", None)
    if changed is not None:
        changed(kept)


def least_loaded(replicas: Sequence[RoutedReplica]) -> int:
    """The index of the replica with the fewest unfinished requests; the first one if equal."""
    loads = [replica.num_unfinished for replica in replicas]
    return loads.index(min(loads))


class RoundRobin:
    """Sends requests to the replicas in turn."""

    looks_at_loads = False

    def __init__(self) -> None:
        self._next = 0

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        chosen = self._next % len(replicas)
        self._next = chosen + 1
        return chosen


class LeastLoaded:
    """Sends each request to the replica with the fewest unfinished ones; the first if equal."""

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        return least_loaded(replicas)


class PowerOfTwo:
    """Draws two replicas and sends the request to the less loaded one; the first drawn if equal.

    Args:
        random: what replicas are drawn from; equal generators give equal choices.
    """

    def __init__(self, *, random: "np.random.Generator") -> None:
        self._random = random

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        if len(replicas) == 1:
            return 0
        one = int(self._random.integers(len(replicas)))
        other = (one + 1 + int(self._random.integers(len(replicas) - 1))) % len(replicas)
        return one if replicas[one].num_unfinished <= replicas[other].num_unfinished else other


class RandomChoice:
    """Sends each request to a replica drawn at random; all are equally likely.

    Args:
        random: what choices are drawn from; equal generators give equal choices.
    """

    looks_at_loads = False

    def __init__(self, *, random: "np.random.Generator") -> None:
        self._random = random

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        return int(self._random.integers(len(replicas)))
