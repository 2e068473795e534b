"""Which leaf is evicted next: least recently used first."""

import heapq

from sim.kvcache.radix_node import RadixNode


class LruLeaves:
    """Unlocked leaves by the tick of their last use, smallest first.

    Entries are corrected when they surface: a leaf used since it was queued goes back with its new
    tick, a node that is no unlocked leaf any more is dropped. So a use costs nothing here.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, RadixNode]] = []
        self._num_pushed = 0

    def offer(self, node: RadixNode) -> None:
        """Queue a node if it may be evicted now; the root never may."""
        if not (node.num_locks or node.children or node.queued):
            node.queued = True
            self._push(node)

    def pop(self) -> RadixNode | None:
        """Take the least recently used unlocked leaf out, or None if there is none."""
        heap = self._heap
        while heap:
            tick, _, node = heapq.heappop(heap)
            if node.num_locks or node.children:
                node.queued = False
            elif node.last_used_tick != tick:
                self._push(node)
            else:
                node.queued = False
                return node
        return None

    def _push(self, node: RadixNode) -> None:
        self._num_pushed += 1
        heapq.heappush(self._heap, (node.last_used_tick, self._num_pushed, node))
