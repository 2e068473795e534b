"""Blocks that a step in flight may still write into: they are freed when that step has ended.

On a decode server under async scheduling, KV that comes from elsewhere is not ordered behind the
steps in flight. So vLLM does not let go of the blocks of a request that is in such a step.

vLLM 0.33.0: `_free_request_blocks`, `_drain_deferred_frees` (v1/core/sched/scheduler.py).
"""

from collections import deque

from sim.vllm.cache.request_blocks import RequestBlocks
from sim.vllm.request import VllmLaunch, VllmRequest


class BlockFences:
    """The steps in flight of one server, and the blocks that wait for them.

    Attributes:
        held: blocks of requests that have ended, oldest first: the step after which they are
            freed, the blocks, and the number of tokens in them.
    """

    def __init__(self) -> None:
        self.held: deque[tuple[VllmLaunch, RequestBlocks, int]] = deque()
        self._in_flight: deque[VllmLaunch] = deque()

    def launched(self, launch: VllmLaunch) -> None:
        self._in_flight.append(launch)

    def ended(self) -> list[tuple[RequestBlocks, int]]:
        """The oldest step has ended; returns the blocks that are to be freed now, in order."""
        launch = self._in_flight.popleft()
        freed: list[tuple[RequestBlocks, int]] = []
        while self.held and self.held[0][0] is launch:
            freed.append(self.held.popleft()[1:])
        return freed

    def is_in_flight(self, request: VllmRequest) -> bool:
        return any(request in each.prefill or request in each.decode for each in self._in_flight)

    def hold(self, kv: RequestBlocks, num_tokens: int) -> None:
        """Keep blocks until all steps that are in flight now have ended."""
        self.held.append((self._in_flight[-1], kv, num_tokens))
