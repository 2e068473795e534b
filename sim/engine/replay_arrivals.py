"""Requests of a log, and when their clients gave up, as a replay passes them to an engine."""

import heapq
from collections import deque
from collections.abc import Iterable

from sim.core.request import RequestSpec
from sim.engine.core import EngineCore


class ReplayArrivals:
    """Requests in order of arrival; those that the engine does not take in are left out."""

    def __init__(self, engine: EngineCore, specs: Iterable[RequestSpec]) -> None:
        self._engine = engine
        self._specs = deque(spec for spec in specs if engine.rejection(spec) is None)
        self._given_up: list[tuple[int, str]] = []

    def pass_on(self, now_ns: int) -> None:
        """What has happened until now: clients that give up go before arrivals of the same time."""
        while self._specs and self._specs[0].arrival_ns <= now_ns:
            spec = self._specs.popleft()
            self._give_up(spec.arrival_ns)
            self._engine.submit(spec)
            if spec.gives_up_ns is not None:
                heapq.heappush(self._given_up, (spec.arrival_ns + spec.gives_up_ns, spec.rid))
        self._give_up(now_ns)

    def _give_up(self, now_ns: int) -> None:
        while self._given_up and self._given_up[0][0] <= now_ns:
            self._engine.give_up(heapq.heappop(self._given_up)[1])
