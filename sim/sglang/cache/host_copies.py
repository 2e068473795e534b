"""When copies between the device and host memory end, and who waits for them.

Follows SGLang 0.5.23 (managers/cache_controller.py, `start_writing` and `start_loading`;
mem_cache/unified_radix_cache.py, `writing_check` and `loading_check`). Each direction of the link
makes one copy at a time. No copy starts before the steps that are launched have ended: they may
still write the pages. Decisions look for ended copies when they begin.
"""

from collections import deque

from sim.sglang.cache.radix_node import RadixNode

# Nodes of one copy, and when it ends.
_Copy = tuple[int, list[RadixNode]]


class HostCopies:
    """The copies of one server.

    Attributes:
        take_time: copies take time; otherwise each of them ends when it starts.
        waited_ns: how long the scheduler has waited for copies since the latest decision began.
        unstarted: nodes to be copied to host memory; the next decision starts their copies.
    """

    def __init__(self, ns_per_token: float) -> None:
        self.take_time = ns_per_token > 0
        self.waited_ns = 0
        self.unstarted: list[RadixNode] = []
        self._num_unstarted = 0
        self._ns_per_token = ns_per_token
        self._now_ns = self._device_free_ns = 0
        self._stores: deque[_Copy] = deque()
        self._loads: deque[_Copy] = deque()
        self._stores_free_ns = self._loads_free_ns = 0
        self._to_load: list[RadixNode] = []
        self._num_to_load = 0

    @property
    def next_end_ns(self) -> int | None:
        """When the next copy ends; None: none runs."""
        ends = [copies[0][0] for copies in (self._stores, self._loads) if copies]
        return min(ends) if ends else None

    def begin_decision(self, now_ns: int, device_free_ns: int) -> tuple[list[RadixNode], ...]:
        """Start the copies to host memory; returns nodes now stored, and last nodes of loads."""
        self._now_ns, self._device_free_ns, self.waited_ns = now_ns, device_free_ns, 0
        if self.unstarted:
            self._stores_free_ns = self._end_ns(self._num_unstarted, self._stores_free_ns)
            self._stores.append((self._stores_free_ns, self.unstarted))
            self.unstarted, self._num_unstarted = [], 0
        return _take_ended(self._stores, now_ns), _take_ended(self._loads, now_ns)

    def _end_ns(self, num_tokens: int, free_ns: int) -> int:
        start_ns = max(self._now_ns + self.waited_ns, self._device_free_ns, free_ns)
        return start_ns + round(num_tokens * self._ns_per_token)

    def add_store(self, node: RadixNode) -> None:
        """Copy a node to host memory. If it is split meanwhile, both parts are copied."""
        self.unstarted.append(node)
        self._num_unstarted += node.num_tokens

    def wait_for_store(self, num_tokens: int) -> None:
        """Copy to host memory at once, and wait until it is done (write-back)."""
        if self.take_time:
            self._stores_free_ns = self._end_ns(num_tokens, self._stores_free_ns)
            self.waited_ns = self._stores_free_ns - self._now_ns

    def add_load(self, end: RadixNode, num_tokens: int) -> None:
        """The next batch loads this many tokens up to the end of this node."""
        self._to_load.append(end)
        self._num_to_load += num_tokens

    def start_loads(self) -> None:
        """A batch is about to be launched: start its loads."""
        if self._to_load:
            self._loads_free_ns = self._end_ns(self._num_to_load, self._loads_free_ns)
            self._loads.append((self._loads_free_ns, self._to_load))
            self._to_load, self._num_to_load = [], 0


def _take_ended(copies: deque[_Copy], now_ns: int) -> list[RadixNode]:
    ended: list[RadixNode] = []
    while copies and copies[0][0] <= now_ns:
        ended += copies.popleft()[1]
    return ended
