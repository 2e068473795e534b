"""Copies between the device and host memory: when they begin, and when they end.

As in SGLang 0.5.23: managers/cache_controller.py, `start_writing` and `start_loading`;
mem_cache/unified_radix_cache.py, `writing_check` and `loading_check`. Each direction of the link
makes one copy at a time. No copy starts before the steps that are launched have ended: they may
still write the pages. Decisions look for ended copies when they begin.
"""

from collections import deque
from typing import Final

from sim.sglang.cache.tree.prefix_cache import PathLock
from sim.sglang.cache.tree.radix_node import RadixNode

# SGLang's `LayerDoneCounter.num_counters`: loads that may have begun and are not known to have
# ended.
_MOST_LOADS = 3


class Transfer:
    """A copy of what a prefix has.

    Attributes:
        end: the node at the end of the prefix.
        lock: protects the prefix on the device.
        copy_starts: what `lock_copies` has returned for the copies in host memory.
    """

    def __init__(self, end: RadixNode, lock: PathLock, copy_starts: list[int]) -> None:
        self.end: Final = end
        self.lock: Final = lock
        self.copy_starts: Final = copy_starts


# When a copy ends, and the transfers that it consists of.
_Copy = tuple[int, list[Transfer]]


class HostCopies:
    """The copies of one server.

    Attributes:
        take_time: copies take time; otherwise each of them ends when it starts.
        unstarted: copies to host memory that the next decision starts.
    """

    def __init__(self, ns_per_token: float) -> None:
        self.take_time = ns_per_token > 0
        self._waited_ns = 0
        # Until when the scheduler has waited. A decision that launches nothing may have waited.
        self._waited_until_ns = 0
        self._decides = False
        # What was copied while results were taken, after the latest decision: the next one waits.
        self._copied_with_results: list[float] = []
        self.unstarted: list[Transfer] = []
        self._num_unstarted = 0.0
        self._ns_per_token = ns_per_token
        self._now_ns = self._device_free_ns = 0
        self._stores: deque[_Copy] = deque()
        self._loads: deque[_Copy] = deque()
        self._stores_free_ns = self._loads_free_ns = 0
        self._to_load: list[Transfer] = []
        self._num_to_load = 0.0

    @property
    def are_under_way(self) -> bool:
        """Whether anything is copied, or waits for it."""
        copies = (self.unstarted, self._copied_with_results, self._stores, self._loads)
        return any(copies) or bool(self._to_load)

    def next_change_ns(self, now_ns: int) -> int | None:
        """When a decision may find that a copy has ended; now if one is to be started or awaited.

        None: nothing is being copied.
        """
        if self.unstarted or self._copied_with_results:
            return now_ns
        ends = [copies[0][0] for copies in (self._stores, self._loads) if copies]
        return min(ends) if ends else None

    def begin_decision(self, now_ns: int, device_free_ns: int) -> tuple[list[Transfer], ...]:
        """Start the copies to host memory; returns those now stored, and the loads that ended."""
        self._decides = True
        self._now_ns, self._device_free_ns = now_ns, device_free_ns
        self._waited_ns = max(self._waited_until_ns - now_ns, 0)
        for num_tokens in self._copied_with_results:
            self._wait_for_store(num_tokens)
        self._copied_with_results.clear()
        if self.unstarted:
            self._stores_free_ns = self._end_ns(self._num_unstarted, self._stores_free_ns)
            self._stores.append((self._stores_free_ns, self.unstarted))
            self.unstarted, self._num_unstarted = [], 0.0
        now_ns += self._waited_ns
        return _take_ended(self._stores, now_ns), _take_ended(self._loads, now_ns)

    def end_decision(self) -> int:
        """A decision ends; returns how long the scheduler has waited for copies."""
        self._decides = False
        return self._waited_ns

    def _end_ns(self, num_tokens: float, free_ns: int) -> int:
        start_ns = max(self._now_ns + self._waited_ns, self._device_free_ns, free_ns)
        return start_ns + round(num_tokens * self._ns_per_token)

    def add_store(self, transfer: Transfer, num_tokens: float) -> None:
        """Copy to host memory, for as long as this many tokens of all layers take.

        A node that is split meanwhile is copied all the same.
        """
        self.unstarted.append(transfer)
        self._num_unstarted += num_tokens

    def wait_for_store(self, num_tokens: float) -> None:
        """Copy to host memory at once, and wait until it is done (write-back)."""
        if not self.take_time:
            return
        if self._decides:
            self._wait_for_store(num_tokens)
        else:
            self._copied_with_results.append(num_tokens)

    def _wait_for_store(self, num_tokens: float) -> None:
        self._stores_free_ns = self._end_ns(num_tokens, self._stores_free_ns)
        self._waited_ns = self._stores_free_ns - self._now_ns
        self._waited_until_ns = self._stores_free_ns

    def add_load(self, transfer: Transfer, num_tokens: float) -> None:
        """The next batch loads this, for as long as this many tokens of all layers take."""
        self._to_load.append(transfer)
        self._num_to_load += num_tokens

    def start_loads(self) -> int:
        """Start what is to be loaded, as one copy; returns when the latest load ends."""
        if self._to_load:
            self._loads_free_ns = self._end_ns(self._num_to_load, self._loads_free_ns)
            self._loads.append((self._loads_free_ns, self._to_load))
            self._to_load, self._num_to_load = [], 0.0
        return self._loads_free_ns

    @property
    def may_start_loads(self) -> bool:
        """Whether SGLang has an event free with which to note the end of another load."""
        return len(self._loads) < _MOST_LOADS

    def has_passed(self, time_ns: int) -> bool:
        """Whether the scheduler, which may have waited in this decision, is at or past a time."""
        return time_ns <= self._now_ns + self._waited_ns


def _take_ended(copies: deque[_Copy], now_ns: int) -> list[Transfer]:
    ended: list[Transfer] = []
    while copies and copies[0][0] <= now_ns:
        ended += copies.popleft()[1]
    return ended
