"""Routers that know no caches, their interface, and the servers among which they choose.

Routers that draw are the policies `power_of_two` and `random` of SGLang's gateway (0.3.2).
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sim.core.errors import InputError
from sim.core.request import RequestSpec
from sim.core.routing import Spill
from sim.des.replicas.one_server import FrontEnd
from sim.des.replicas.replica import Replica


class RoutedReplica(Protocol):
    """What a router may know about a server."""

    @property
    def num_unfinished(self) -> int:
        """Requests that were sent to this replica and have not ended."""


class Router(Protocol):
    """Chooses a replica for each request, in order of arrival. Each run needs a new router.

    Where the number of replicas changes, a router that remembers replicas by their indices has a
    method `changed` (`tell_changed`).

    A router that believes to know what the replicas have cached says so with an attribute
    `predicted_tokens`: how many tokens of the latest request's prompt are cached where it goes.

    A router that never reads the load of a replica says so with an attribute `looks_at_loads`,
    which is False. Its choices depend on the requests alone, so each replica can be simulated
    on its own. It predicts nothing.
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


def predicted_tokens(router: Router) -> int | None:
    """What the router predicts of its latest request (see `Router`); None: nothing."""
    predicted: int | None = getattr(router, "predicted_tokens", None)
    return predicted


def seen_replicas(router: Router, replicas: Sequence[RoutedReplica]) -> Sequence[RoutedReplica]:
    """What the router is shown of these replicas."""
    return replicas if looks_at_loads(router) else [HiddenReplica()] * len(replicas)


def tell_changed(router: Router, kept: Sequence[int]) -> None:
    """Tell a router that from now on it chooses from other replicas.

    If it has a method `changed`, that is called with `kept`: for each replica, the index that it
    had before; -1: it is new, and its cache is empty. Replicas that are not in it have left.
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


class SessionSticky:
    """Assigns a session's first request to a replica, and sends later ones to the same replica.

    So all requests of a conversation go to the replica that has its prefix. The rules are those of
    policy `manual` of SGLang's gateway (sgl-model-gateway 0.3.2), with its assignment modes by
    least load and at random. Deliberate differences: the first of several equal loads is chosen; a
    request without a session is assigned like the first of a session; a session expires at its
    exact time, not in a check once a minute. The same gateway's policy `prefix_hash` has the rule
    that says when a replica has too much (`load_ok`).

    Args:
        by_tenant: treat all requests of a tenant as one session.
        max_idle_ns: forget a session that has sent nothing for this time; None: never.
        spill: when a request goes elsewhere than its session; None: never.
        random: what assignments are drawn from; None: the least loaded replica is chosen.
    """

    def __init__(
        self,
        *,
        by_tenant: bool,
        max_idle_ns: int | None,
        spill: Spill | None,
        random: "np.random.Generator | None" = None,
    ) -> None:
        self.looks_at_loads = random is None or spill is not None
        self._spill = spill
        self._random = random
        self._by_tenant = by_tenant
        self._max_idle_ns = max_idle_ns
        # Session -> (replica, last arrival). The session that has been idle longest comes first.
        self._sessions: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        self._forget(spec.arrival_ns)
        session = spec.tenant if self._by_tenant else spec.session
        known = self._sessions.pop(session, None)
        chosen = home = self._assign(replicas) if known is None else known[0]
        if known is not None and self._has_too_much(home, replicas):
            chosen = least_loaded(replicas)
        if session:
            moves = self._spill is not None and self._spill.moves
            self._sessions[session] = chosen if moves else home, spec.arrival_ns
        return chosen

    def changed(self, kept: Sequence[int]) -> None:
        """Forget the sessions whose replica has left."""
        index_of = {before: index for index, before in enumerate(kept) if before >= 0}
        self._sessions = OrderedDict(
            (session, (index_of[replica], last_ns))
            for session, (replica, last_ns) in self._sessions.items()
            if replica in index_of
        )

    def _has_too_much(self, home: int, replicas: Sequence[RoutedReplica]) -> bool:
        if self._spill is None:
            return False
        loads = [replica.num_unfinished for replica in replicas]
        most = self._spill.load_factor * (sum(loads) + 1) / len(loads)
        return loads[home] > max(most, self._spill.above)

    def _assign(self, replicas: Sequence[RoutedReplica]) -> int:
        if self._random is None:
            return least_loaded(replicas)
        return int(self._random.integers(len(replicas)))

    def _forget(self, now_ns: int) -> None:
        if self._max_idle_ns is None:
            return
        while self._sessions:
            session, (_, last_ns) = next(iter(self._sessions.items()))
            if now_ns - last_ns < self._max_idle_ns:
                return
            del self._sessions[session]


class Target(NamedTuple):
    """A server that requests can be sent to.

    Attributes:
        entry: what a request for it enters: the server, or its front end.
        number: of its first rank in the log.
    """

    replica: Replica
    entry: Replica | FrontEnd
    number: int


class RoutedServers:
    """The servers of one role, which may change in a run, and the router that chooses among them.

    Attributes:
        targets: the servers that take requests now.
        on_choice: called with each request and its server, if set.
        on_prediction: called with the id of each request of which the router predicts how many
            tokens are cached, and with their number, if set.
    """

    def __init__(self, targets: Sequence[Target], router: Router) -> None:
        self.targets = list(targets)
        self.on_choice: Callable[[RequestSpec, Target], None] | None = None
        self.on_prediction: Callable[[str, int], None] | None = None
        self._router = router
        self._seen: Sequence[RoutedReplica] = seen_replicas(router, [t.entry for t in targets])

    def choose(self, spec: RequestSpec) -> Target:
        """The server that gets a request which arrives now."""
        target = self.targets[self._router.choose(spec, self._seen)]
        predicted = predicted_tokens(self._router)
        if predicted is not None and self.on_prediction is not None:
            self.on_prediction(spec.rid, predicted)
        if self.on_choice is not None:
            self.on_choice(spec, target)
        return target

    def offer(self, targets: Sequence[Target]) -> None:
        """From now on these servers take requests; the router learns which of them it knows."""
        before = {id(target.replica): index for index, target in enumerate(self.targets)}
        self.targets = list(targets)
        self._seen = seen_replicas(self._router, [target.entry for target in targets])
        tell_changed(self._router, [before.get(id(target.replica), -1) for target in targets])
