"""Shortest prompt first. Requests that have waited five seconds go before, oldest first."""

from collections.abc import Sequence

from sim.engine.request import Request
from sim.sglang.policies.policy import CacheBlind, QueueView

_LATE_NS = 5_000_000_000


class ShortestPromptFirst(CacheBlind):
    """Short questions do not wait behind long documents, and long documents do not wait forever."""

    def order(self, waiting: Sequence[Request], view: QueueView) -> list[Request]:
        def key(request: Request) -> tuple[int, int]:
            arrival_ns = request.spec.arrival_ns
            is_late = view.now_ns - arrival_ns >= _LATE_NS
            return (0, arrival_ns) if is_late else (1, request.prompt_len)

        return sorted(waiting, key=key)
