"""Requests that come from other threads while the server runs."""

from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition

from realrun.clock import WallClock
from realrun.server.traffic import GivenUp
from sim.core.request import RequestSpec
from sim.core.units import NS_PER_S
from sim.workload.workload import ScriptedRequest


class Inbox:
    """A server's traffic: what clients have sent, with the time at which it came.

    The server sees at time t exactly what came up to t. To keep that true with several threads,
    times are given under a lock, rise strictly, and are later than the time of the server's last
    look.
    """

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._changed = Condition()
        self._events: deque[tuple[int, ScriptedRequest | GivenUp]] = deque()
        self._live: dict[str, RequestSpec] = {}
        self._last_ns = 0
        self._is_closed = False

    # ---- for clients, in any thread ------------------------------------------------------------

    def submit(self, make: Callable[[int], ScriptedRequest]) -> bool:
        """A request arrives; `make` gets its time of arrival.

        Returns:
            False if the server takes no more requests.
        """
        with self._changed:
            if self._is_closed:
                return False
            request = make(self._now_ns())
            self._live[request.spec.rid] = request.spec
            self._put(request.spec.arrival_ns, request)
        return True

    def give_up(self, rid: str) -> None:
        """The client of a request has gone."""
        with self._changed:
            self._give_up(rid)

    def close(self) -> None:
        """Take no more requests, and end those that are under way."""
        with self._changed:
            self._is_closed = True
            for rid in self._live:
                self._give_up(rid)
            self._changed.notify()

    def _give_up(self, rid: str) -> None:
        spec = self._live.get(rid)
        if spec is not None and spec.gives_up_ns is None:
            now_ns = self._now_ns()
            spec.gives_up_ns = now_ns - spec.arrival_ns
            self._put(now_ns, GivenUp(rid))

    def _now_ns(self) -> int:
        self._last_ns = max(self._clock.now_ns(), self._last_ns + 1)
        return self._last_ns

    def _put(self, time_ns: int, event: ScriptedRequest | GivenUp) -> None:
        self._events.append((time_ns, event))
        self._changed.notify()

    # ---- for the server: `Traffic` -------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        with self._changed:
            return self._is_closed and not self._events

    def arrived(self, now_ns: int) -> Iterator[ScriptedRequest | GivenUp]:
        with self._changed:
            self._last_ns = max(self._last_ns, now_ns)
            due = []
            while self._events and self._events[0][0] <= now_ns:
                due.append(self._events.popleft()[1])
        return iter(due)

    def over(self, rid: str, now_ns: int) -> None:
        with self._changed:
            self._live.pop(rid, None)

    def wait(self, clock: WallClock, until_ns: int | None) -> None:
        with self._changed:
            if self._events or self._is_closed:
                return
            rest_ns = None if until_ns is None else until_ns - clock.now_ns()
            self._changed.wait(None if rest_ns is None else max(rest_ns, 0) / NS_PER_S)
