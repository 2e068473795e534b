"""Fairness rules: they change a policy's order so that no request starves; one class a rule.

A policy that prefers cached prefixes may pass over a request for ever. `fairness_t` bounds the
wait: `AgingQueue` knows when requests age, without a look at each of them in every pass. The other
rules were proposed elsewhere (docs/explanation/fairness.md).
"""

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mypy_extensions import mypyc_attr

from sim.core.request import Status
from sim.engine.scheduler import NEVER_AGES_NS
from sim.sglang.request import SglangRequest


@dataclass(frozen=True, slots=True)
class FairnessT:
    """Settings of `fairness_t`: a request that has waited for `t_ns` is aged."""

    t_ns: int


@dataclass(frozen=True, slots=True)
class KLpm:
    """Settings of `k_lpm`: of every `k` admitted requests, the first is the oldest one."""

    k: int


@dataclass(frozen=True, slots=True)
class AgingTokens:
    """Settings of `aging_tokens_per_pass`: each pass waited counts like `tokens` cached tokens."""

    tokens: int


@dataclass(frozen=True, slots=True)
class ForceFifo:
    """Settings of `force_fifo_every`: every `passes`-th pass is first come, first served."""

    passes: int


FairnessSettings = FairnessT | KLpm | AgingTokens | ForceFifo


class FairnessRule(Protocol):
    """Changes a policy's order. Each pass calls `reorder` once, then `note_admitted`."""

    def reorder(
        self, ordered: list[SglangRequest], now_ns: int, deferred: frozenset[int]
    ) -> list[SglangRequest]:
        """The order of the pass, made from the policy's order.

        `ordered` are the waiting requests in the policy's order, `deferred` ids of requests whose
        prefix an earlier waiting request will compute.
        """

    def note_admitted(self, num_requests: int) -> None:
        """Note how many waiting requests the pass admitted."""

    def ages_ns(self, request: SglangRequest) -> int:
        """The time at which a waiting request ages; NEVER_AGES_NS: it never does."""


def by_arrival(requests: Sequence[SglangRequest]) -> list[SglangRequest]:
    """Oldest first. A retracted request keeps its first arrival time."""
    return sorted(requests, key=lambda request: request.spec.arrival_ns)


@mypyc_attr(allow_interpreted_subclasses=True)
class NoFairness:
    """The policy's order, unchanged."""

    def reorder(
        self, ordered: list[SglangRequest], now_ns: int, deferred: frozenset[int]
    ) -> list[SglangRequest]:
        return ordered

    def note_admitted(self, num_requests: int) -> None:
        """Without a rule there is nothing to count."""

    def ages_ns(self, request: SglangRequest) -> int:
        return NEVER_AGES_NS


@mypyc_attr(allow_interpreted_subclasses=True)
class BoundedWait(NoFairness):
    """`fairness_t`: aged requests go before all others, oldest first.

    A request is aged once it has waited for `t_ns`. Admission may then ignore the memory reserved
    for future outputs of running requests, because that memory is free now and may never be needed.
    This is allowed only until the request's first retraction, which shows that the memory was
    needed. An aged request still waits until enough pages and slots are free; meanwhile no other
    request overtakes it, so they become free for it.

    With `t_ns` 0 all requests are aged from the start, and the order is first come, first served.
    Reservations then hold for all of them.

    Attributes:
        num_aged: how many requests `reorder` has last found to be aged.
    """

    def __init__(self, settings: FairnessT) -> None:
        self._t_ns = settings.t_ns
        self.num_aged = 0

    def reorder(
        self, ordered: list[SglangRequest], now_ns: int, deferred: frozenset[int]
    ) -> list[SglangRequest]:
        aged, others = [], []
        for request in ordered:
            if self.ages_ns(request) <= now_ns:
                self.note_aged(request)
                aged.append(request)
            else:
                others.append(request)
        self.num_aged = len(aged)
        return by_arrival(aged) + others

    def note_aged(self, request: SglangRequest) -> None:
        request.is_aged = True
        request.may_overdraw = self._t_ns > 0 and not request.retractions

    def ages_ns(self, request: SglangRequest) -> int:
        return request.spec.arrival_ns + self._t_ns


@mypyc_attr(allow_interpreted_subclasses=True)
class OldestThenBest(NoFairness):
    """`k_lpm`: the oldest request, then k - 1 in the policy's order, and so on (arXiv 2502.04677).

    k = 1 is first come, first served; with a large k it is nearly the policy's order.
    """

    def __init__(self, settings: KLpm) -> None:
        self._k = settings.k
        self._num_admitted = 0

    def reorder(
        self, ordered: list[SglangRequest], now_ns: int, deferred: frozenset[int]
    ) -> list[SglangRequest]:
        oldest, best = iter(by_arrival(ordered)), iter(ordered)
        taken: set[int] = set()
        result: list[SglangRequest] = []
        while len(result) < len(ordered):
            turn = (self._num_admitted + len(result)) % self._k
            source = oldest if turn == 0 else best
            request = next(request for request in source if id(request) not in taken)
            taken.add(id(request))
            result.append(request)
        return result

    def note_admitted(self, num_requests: int) -> None:
        self._num_admitted += num_requests


@mypyc_attr(allow_interpreted_subclasses=True)
class CreditForWaiting(NoFairness):
    """`aging_tokens_per_pass`: order by cached tokens plus a credit for each pass waited."""

    def __init__(self, settings: AgingTokens) -> None:
        self._tokens = settings.tokens
        self._num_passes = 0

    def reorder(
        self, ordered: list[SglangRequest], now_ns: int, deferred: frozenset[int]
    ) -> list[SglangRequest]:
        self._num_passes += 1

        def score(request: SglangRequest) -> int:
            if request.first_pass < 0:
                request.first_pass = self._num_passes
            cached = -1 if id(request) in deferred else request.matched_len
            return cached + self._tokens * (self._num_passes - request.first_pass)

        return sorted(ordered, key=lambda request: -score(request))


@mypyc_attr(allow_interpreted_subclasses=True)
class FifoEveryNth(NoFairness):
    """`force_fifo_every`: every n-th pass is in order of arrival."""

    def __init__(self, settings: ForceFifo) -> None:
        self._passes = settings.passes
        self._num_passes = 0

    def reorder(
        self, ordered: list[SglangRequest], now_ns: int, deferred: frozenset[int]
    ) -> list[SglangRequest]:
        self._num_passes += 1
        return ordered if self._num_passes % self._passes else by_arrival(ordered)


def build_fairness(
    settings: FairnessSettings | None, own: FairnessRule | None = None
) -> FairnessRule | None:
    """The user's own rule, or the rule for these settings; None: the policy's order is kept."""
    if own is not None:
        return own
    match settings:
        case None:
            return None
        case FairnessT():
            return BoundedWait(settings)
        case KLpm():
            return OldestThenBest(settings)
        case AgingTokens():
            return CreditForWaiting(settings)
        case ForceFifo():
            return FifoEveryNth(settings)


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

    The queue `requests` is changed in place: its first `num_aged` requests have aged before, its
    last `num_entered` have entered since the last pass. `newly_aged` are in any order.

    Returns the number of aged requests, which are the first ones of the queue.
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
