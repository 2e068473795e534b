"""Which server a request goes to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sim.core.request import RequestSpec
from sim.des.server import Server


class Router(Protocol):
    """Chooses a server for each arriving request."""

    def choose(self, spec: RequestSpec, servers: Sequence[Server]) -> Server: ...


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, spec: RequestSpec, servers: Sequence[Server]) -> Server:
        server = servers[self._next % len(servers)]
        self._next += 1
        return server


ROUTERS: Mapping[str, Callable[[], Router]] = {"round-robin": RoundRobin}
