"""vLLM's two waiting queues (rules 5 and 6)."""

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from sim.vllm.request import VllmRequest

_Entry = tuple[int, int, str, VllmRequest]


class WaitingRequests(Protocol):
    """Requests that wait, and who of them is next."""

    def __len__(self) -> int: ...

    def add(self, request: VllmRequest) -> None:
        """A request arrived."""
        ...

    def put_back(self, request: VllmRequest) -> None:
        """A request was preempted."""
        ...

    def next(self) -> VllmRequest:
        """Who is next; there must be somebody."""
        ...

    def remove(self, request: VllmRequest) -> None:
        """A request waits no more."""
        ...

    def all(self) -> Iterable[VllmRequest]:
        """Everybody, in no order to rely on."""
        ...


class FcfsQueue:
    """First come, first served; whoever is put back goes before all others."""

    def __init__(self) -> None:
        self._queue: deque[VllmRequest] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: VllmRequest) -> None:
        self._queue.append(request)

    def put_back(self, request: VllmRequest) -> None:
        self._queue.appendleft(request)

    def next(self) -> VllmRequest:
        return self._queue[0]

    def remove(self, request: VllmRequest) -> None:
        if self._queue[0] is request:
            self._queue.popleft()
        else:
            self._queue.remove(request)

    def all(self) -> Iterable[VllmRequest]:
        return self._queue


class PriorityQueue:
    """Smaller priority values first, then by arrival and by name."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, request: VllmRequest) -> None:
        heapq.heappush(
            self._heap, (request.priority, request.spec.arrival_ns, request.rid, request)
        )

    def put_back(self, request: VllmRequest) -> None:
        """Back to the place it has by its priority."""
        self.add(request)

    def next(self) -> VllmRequest:
        return self._heap[0][3]

    def remove(self, request: VllmRequest) -> None:
        if self._heap[0][3] is request:
            heapq.heappop(self._heap)
        else:
            self._heap = [entry for entry in self._heap if entry[3] is not request]
            heapq.heapify(self._heap)

    def all(self) -> Iterable[VllmRequest]:
        return [entry[3] for entry in self._heap]


def build_waiting(scheduling_policy: str) -> WaitingRequests:
    """The queue of a policy, `fcfs` or `priority`."""
    return PriorityQueue() if scheduling_policy == "priority" else FcfsQueue()
