"""Shortest prompt first; but requests that have waited too long go first, oldest first."""

from sim.sglang.policies.policy import CacheBlind


class ShortestPromptFirst(CacheBlind):
    """Orders the waiting queue."""

    def __init__(self, config, *, late_ms=1000):
        super().__init__(config)
        self.late_ns = late_ms * 1_000_000

    def order(self, waiting, view):
        def key(request):
            arrival_ns = request.spec.arrival_ns
            is_late = view.now_ns - arrival_ns >= self.late_ns
            return (0, arrival_ns) if is_late else (1, request.prompt_len)

        return sorted(waiting, key=key)
