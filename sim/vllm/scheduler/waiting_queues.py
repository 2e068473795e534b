"""vLLM's two waiting queues (rules 5 and 6)."""

import heapq
from collections import deque
from collections.abc import Iterable

from sim.vllm.request import VllmRequest


class FcfsQueue:
    """First come, first served."""

    def __init__(self) -> None:
        self._queue: deque[VllmRequest] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: VllmRequest) -> None:
        self._queue.append(request)

    def put_back(self, request: VllmRequest) -> None:
        """A preempted request goes to the front."""
        self._queue.appendleft(request)

    def next(self) -> VllmRequest:
        """The next request to admit; the queue must not be empty."""
        return self._queue[0]

    def is_ahead_of(self, other: "WaitingQueue") -> bool:
        """Whether its next request comes before that of another queue; neither is empty."""
        return True

    def remove(self, request: VllmRequest) -> None:
        if self._queue[0] is request:
            self._queue.popleft()
        else:
            self._queue.remove(request)

    def all(self) -> Iterable[VllmRequest]:
        """All waiting requests, in any order."""
        return self._queue


class PriorityQueue:
    """Smallest priority value first, then earliest arrival, then smallest request id."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str, VllmRequest]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, request: VllmRequest) -> None:
        heapq.heappush(self._heap, (*_place(request), request))

    def put_back(self, request: VllmRequest) -> None:
        """A preempted request gets no privilege: its priority and arrival decide."""
        self.add(request)

    def next(self) -> VllmRequest:
        return self._heap[0][3]

    def is_ahead_of(self, other: "WaitingQueue") -> bool:
        mine, its = self.next(), other.next()
        return _place(mine) <= _place(its)

    def remove(self, request: VllmRequest) -> None:
        if self._heap[0][3] is request:
            heapq.heappop(self._heap)
        else:
            self._heap = [entry for entry in self._heap if entry[3] is not request]
            heapq.heapify(self._heap)

    def all(self) -> Iterable[VllmRequest]:
        return [entry[3] for entry in self._heap]


def _place(request: VllmRequest) -> tuple[int, int, str]:
    return request.priority, request.spec.arrival_ns, request.rid


WaitingQueue = FcfsQueue | PriorityQueue


def build_waiting(scheduling_policy: str) -> WaitingQueue:
    """The queue of scheduling policy `fcfs` or `priority`."""
    return PriorityQueue() if scheduling_policy == "priority" else FcfsQueue()
