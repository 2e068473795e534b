"""When the waiting requests age under FAIRNESS_T, without a look at each of them in every pass."""

import heapq
from bisect import bisect_right

from sim.core.request import Status
from sim.engine.scheduler import NEVER_AGES_NS
from sim.sglang.request import SglangRequest


class AgingQueue:
    """The waiting requests by the time at which they age.

    Requests that have left the queue are removed when their time comes.
    """

    def __init__(self) -> None:
        self._young: list[tuple[int, int, SglangRequest]] = []
        self._aged: list[tuple[int, SglangRequest]] = []

    def enter(self, request: SglangRequest, ages_ns: int) -> None:
        heapq.heappush(self._young, (ages_ns, request.entry, request))

    def next_ns(self, now_ns: int) -> int:
        """When the next request ages, after now; NEVER_AGES_NS: none will."""
        young = self._young
        while young:
            ages_ns, entry, request = young[0]
            waits = _waits(request, entry)
            if waits and ages_ns > now_ns:
                return ages_ns
            heapq.heappop(young)
            if waits:
                self._aged.append((entry, request))
        return NEVER_AGES_NS

    def take_aged(self, now_ns: int) -> list[SglangRequest]:
        """The waiting requests that have aged since the last call."""
        self.next_ns(now_ns)
        aged = [request for entry, request in self._aged if _waits(request, entry)]
        self._aged = []
        return aged


def _waits(request: SglangRequest, entry: int) -> bool:
    return request.status is Status.WAITING and request.entry == entry


def bring_forward(
    requests: list[SglangRequest],
    num_aged: int,
    newly_aged: list[SglangRequest],
    num_entered: int,
) -> int:
    """Move newly aged requests behind those that were aged before; all of these go by arrival.

    Among requests with the same arrival the order before stays.

    Args:
        requests: the queue, changed in place.
        num_aged: the first `num_aged` requests have aged before.
        newly_aged: in any order.
        num_entered: the last `num_entered` requests have entered since the last pass.

    Returns:
        The number of aged requests, which are the first ones of the queue.
    """
    missing = set(map(id, newly_aged))
    # Usually they are the next ones in the queue.
    end = num_aged
    while missing and id(requests[end]) in missing:
        missing.remove(id(requests[end]))
        end += 1
    moving = requests[num_aged:end]
    others: list[SglangRequest] = []
    for start in (max(len(requests) - num_entered, end), end):
        if missing:
            tail = requests[start:]
            others = [request for request in tail if id(request) in missing]
            if len(others) == len(missing) or start == end:
                requests[start:] = [request for request in tail if id(request) not in missing]
                break
    del requests[num_aged:end]
    for request in sorted([*moving, *others], key=_arrival_ns):
        index = bisect_right(requests, _arrival_ns(request), 0, num_aged, key=_arrival_ns)
        requests.insert(index, request)
        num_aged += 1
    return num_aged


def _arrival_ns(request: SglangRequest) -> int:
    return request.spec.arrival_ns
