"""Session-sticky routing: a conversation stays where its prefix is.

As policy `manual` of SGLang's gateway (sgl-model-gateway 0.3.2) with assignment by least load.
Deliberate differences: nothing is random, so that of equal loads the first is taken, and a request
that names no session goes by load; sessions are forgotten to the nanosecond, not once a minute.
"""

from collections import OrderedDict
from collections.abc import Sequence

from sim.core.request import RequestSpec
from sim.des.routers.router import Replica, least_loaded


class SessionSticky:
    """Requests of one session follow its first; a new session goes where the load is least.

    Args:
        by_tenant: all requests of a tenant are one session, whatever sessions they name.
        max_idle_ns: a session that has sent nothing for so long is new again; None: never.
    """

    def __init__(self, *, by_tenant: bool, max_idle_ns: int | None) -> None:
        self._by_tenant = by_tenant
        self._max_idle_ns = max_idle_ns
        # Session -> (replica, last arrival), the one idle for longest first.
        self._sessions: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def choose(self, spec: RequestSpec, replicas: Sequence[Replica]) -> int:
        self._forget(spec.arrival_ns)
        session = spec.tenant if self._by_tenant else spec.session
        known = self._sessions.pop(session, None)
        if known is not None:
            chosen = known[0]
        else:
            chosen = least_loaded([replica.num_unfinished for replica in replicas])
        if session:
            self._sessions[session] = chosen, spec.arrival_ns
        return chosen

    def _forget(self, now_ns: int) -> None:
        if self._max_idle_ns is None:
            return
        while self._sessions:
            session, (_, last_ns) = next(iter(self._sessions.items()))
            if now_ns - last_ns < self._max_idle_ns:
                return
            del self._sessions[session]
