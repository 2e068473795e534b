"""Session-sticky routing: all requests of a conversation go to the replica that has its prefix.

The rules are those of policy `manual` of SGLang's gateway (sgl-model-gateway 0.3.2), with its
assignment modes by least load and at random. Deliberate differences: the first of several equal
loads is chosen; a request without a session is assigned like the first of a session; a session
expires at its exact time, not in a check once a minute.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from sim.core.request import RequestSpec
from sim.des.routers.router import RoutedReplica, least_loaded


class SessionSticky:
    """Assigns a session's first request to a replica, and sends later ones to the same replica.

    Args:
        by_tenant: treat all requests of a tenant as one session.
        max_idle_ns: forget a session that has sent nothing for this time; None: never.
        random: what assignments are drawn from; None: the least loaded replica is chosen.
    """

    def __init__(
        self,
        *,
        by_tenant: bool,
        max_idle_ns: int | None,
        random: "np.random.Generator | None" = None,
    ) -> None:
        self.looks_at_loads = random is None
        self._random = random
        self._by_tenant = by_tenant
        self._max_idle_ns = max_idle_ns
        # Session -> (replica, last arrival). The session that has been idle longest comes first.
        self._sessions: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def choose(self, spec: RequestSpec, replicas: Sequence[RoutedReplica]) -> int:
        self._forget(spec.arrival_ns)
        session = spec.tenant if self._by_tenant else spec.session
        known = self._sessions.pop(session, None)
        chosen = self._assign(replicas) if known is None else known[0]
        if session:
            self._sessions[session] = chosen, spec.arrival_ns
        return chosen

    def changed(self, kept: Sequence[int]) -> None:
        """Forget the sessions whose replica has left."""
        index_of = {before: index for index, before in enumerate(kept) if before >= 0}
        self._sessions = OrderedDict(
            (session, (index_of[replica], last_ns))
            for session, (replica, last_ns) in self._sessions.items()
            if replica in index_of
        )

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
