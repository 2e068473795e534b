"""Servers among which a router chooses. They may change while the simulation runs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sim.core.request import RequestSpec
from sim.des.replicas.front_end import FrontEnd
from sim.des.replicas.replica import Replica
from sim.des.routers.router import RoutedReplica, Router, seen_replicas, tell_changed


class Target(NamedTuple):
    """A server that requests can be sent to.

    Attributes:
        replica: the server.
        entry: what a request for it enters: the server, or its front end.
        number: of its first rank in the log.
    """

    replica: Replica
    entry: Replica | FrontEnd
    number: int


class RoutedServers:
    """The servers of one role, and the router that chooses among them.

    Attributes:
        targets: the servers that take requests now.
        on_choice: called with each request and its server; None: nobody asks.
    """

    def __init__(self, targets: Sequence[Target], router: Router) -> None:
        self.targets = list(targets)
        self.on_choice: Callable[[RequestSpec, Target], None] | None = None
        self._router = router
        self._seen: Sequence[RoutedReplica] = seen_replicas(router, [t.entry for t in targets])

    def choose(self, spec: RequestSpec) -> Target:
        """The server that gets a request which arrives now."""
        target = self.targets[self._router.choose(spec, self._seen)]
        if self.on_choice is not None:
            self.on_choice(spec, target)
        return target

    def offer(self, targets: Sequence[Target]) -> None:
        """From now on these servers take requests; the router learns which of them it knows."""
        before = {id(target.replica): index for index, target in enumerate(self.targets)}
        self.targets = list(targets)
        self._seen = seen_replicas(self._router, [target.entry for target in targets])
        tell_changed(self._router, [before.get(id(target.replica), -1) for target in targets])
