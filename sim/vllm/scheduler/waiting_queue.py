"""vLLM's two waiting queues (rules 5 and 6)."""

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Generic

from sim.vllm.request import V


class FcfsQueue(Generic[V]):
    """First come, first served."""

    def __init__(self) -> None:
        self._queue: deque[V] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: V) -> None:
        self._queue.append(request)

    def put_back(self, request: V) -> None:
        """A preempted request goes to the front."""
        self._queue.appendleft(request)

    def next(self) -> V:
        """The next request to admit; the queue must not be empty."""
        return self._queue[0]

    def remove(self, request: V) -> None:
        if self._queue[0] is request:
            self._queue.popleft()
        else:
            self._queue.remove(request)

    def all(self) -> Iterable[V]:
        """All waiting requests, in any order."""
        return self._queue


class PriorityQueue(Generic[V]):
    """Smallest priority value first, then earliest arrival, then smallest request id."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str, V]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, request: V) -> None:
        heapq.heappush(
            self._heap, (request.priority, request.spec.arrival_ns, request.rid, request)
        )

    def put_back(self, request: V) -> None:
        """A preempted request gets no privilege: its priority and arrival decide."""
        self.add(request)

    def next(self) -> V:
        return self._heap[0][3]

    def remove(self, request: V) -> None:
        if self._heap[0][3] is request:
            heapq.heappop(self._heap)
        else:
            self._heap = [entry for entry in self._heap if entry[3] is not request]
            heapq.heapify(self._heap)

    def all(self) -> Iterable[V]:
        return [entry[3] for entry in self._heap]


WaitingQueue = FcfsQueue[V] | PriorityQueue[V]


def build_waiting(scheduling_policy: str) -> WaitingQueue[V]:
    """The queue of scheduling policy `fcfs` or `priority`."""
    return PriorityQueue() if scheduling_policy == "priority" else FcfsQueue()
