"""What every schedule policy, fairness rule and admission of SGLang's scheduler must do.

The first functions make the requests and the caches that the suites try them with.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np

from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt, stream_token_ids
from sim.engine.page_pool import PageCounts
from sim.engine.request import OutputTokens
from sim.sglang.cache.tree.prefix_cache import PrefixCache
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import QueueView, SchedulePolicy
from sim.sglang.request import RequestKV, SglangRequest
from sim.sglang.scheduler.prefill.admission import Admission
from sim.sglang.scheduler.waiting.fairness import FairnessRule
from sim.sglang.user_rules import (
    ADMISSION,
    FAIRNESS,
    POLICY,
    GuardedAdmission,
    GuardedFairness,
    GuardedPolicy,
)
from sim.testing.user_classes import Contract


def waiting_request(
    rid: str,
    *segments: tuple[int, int],
    limit: int = 10,
    priority: int = 0,
    predicted: int | None = None,
    entry: int = 0,
    ignore_eos: bool = False,
) -> SglangRequest:
    """A waiting request that belongs to no scheduler."""
    spec = RequestSpec(
        rid=rid,
        arrival_ns=0,
        prompt=SegmentPrompt(segments),
        max_new_tokens=limit,
        priority=priority,
        predicted_output_tokens=predicted,
        ignore_eos=ignore_eos,
    )
    outputs = OutputTokens(partial(stream_token_ids, 0, 0), partial(stream_token_ids, 0))
    kv = RequestKV(spec.prompt, outputs, PageCounts(0, 1).empty)
    request = SglangRequest(spec, kv, limit=limit)
    request.entry = entry
    return request


def matched(request: SglangRequest, cache: PrefixCache) -> SglangRequest:
    """The request with its prefix matched, as the waiting queue does before it asks a policy."""
    match = cache.match(request.kv.token_ids(request.num_tokens), request.num_tokens)
    request.kv.found = cache.touch(match)
    request.matched_len = min(match.num_tokens, request.num_tokens - 1)
    return request


def varied_queue(seed: int, cache: PrefixCache) -> list[SglangRequest]:
    """Waiting requests that share prefixes with each other and with the cache."""
    rng = np.random.default_rng(seed)
    queue = []
    for i in range(int(rng.integers(1, 30))):
        shared = (int(rng.integers(1, 4)), int(rng.integers(1, 60)))
        request = waiting_request(
            f"r{rng.integers(0, 1000)}-{i}",
            shared,
            (100 + i, int(rng.integers(1, 40))),
            limit=int(rng.integers(1, 5)),
            priority=int(rng.integers(0, 3)),
            predicted=int(rng.integers(1, 5)) if i % 2 else None,
            entry=int(rng.integers(0, 10)) * 100 + i,
        )
        request.entry_tokens = int(rng.integers(0, 500))
        queue.append(matched(request, cache))
    return queue


def warm_cache() -> RadixCache:
    """A cache with the beginnings of two texts."""
    pool = PageCounts(1000, 1)
    cache = RadixCache(pool)
    for seed, num_tokens in ((1, 50), (2, 30), (2, 10)):
        pool.reserve(num_tokens)
        cache.insert(stream_token_ids(seed, 0, num_tokens), 0, pool.take_reserved(num_tokens))
    return cache


def facts_of(request: SglangRequest, without: Collection[str] = ()) -> list[object]:
    """What all attributes of a request say, but those in `without`, to compare it later."""
    # By dir(), as a compiled class has no __slots__.
    names = [
        name for name in dir(SglangRequest) if not name.startswith("__") and name not in without
    ]
    state = [getattr(request, name) for name in names if hasattr(request, name)]
    return [*state, request.kv.found, request.kv.locked, request.kv.protected_len]


MakePolicy = Callable[[], SchedulePolicy]


class SchedulePolicyContract(Contract):
    """Fixture `make_policy: Callable[[], SchedulePolicy]`."""

    fixture = "make_policy"
    kind = POLICY
    guard = GuardedPolicy
    keeps_ties = True

    def context(self) -> tuple[object, ...]:
        return (SchedulerConfig(),)

    def _cases(self) -> Sequence[tuple[list[SglangRequest], QueueView]]:
        cases = []
        for seed in range(12):
            cache = warm_cache()
            queue = varied_queue(seed, cache)
            deferred = frozenset(id(request) for request in queue[3::4])
            cases.append((queue, QueueView(0, cache.root, deferred, 500)))
        return cases

    def test_order_any_queue_has_the_same_requests(self, make_policy: MakePolicy) -> None:
        """Each request is in the order exactly once; an empty queue stays empty."""
        for queue, view in self._cases():
            order = make_policy().order(queue, view)
            assert sorted(map(id, order)) == sorted(map(id, queue))
            assert make_policy().order([], view) == []

    def test_order_any_queue_changes_nothing(self, make_policy: MakePolicy) -> None:
        """Neither the list that is passed in nor its requests are changed."""
        for queue, view in self._cases():
            before = list(queue), [facts_of(request) for request in queue]
            order = make_policy().order(queue, view)
            order.clear()
            assert (queue, [facts_of(request) for request in queue]) == before

    def test_order_same_calls_give_the_same_orders(self, make_policy: MakePolicy) -> None:
        """Two equal policies give equal orders, call by call."""
        one, other = make_policy(), make_policy()
        for queue, view in self._cases():
            for _ in range(2):
                assert one.order(queue, view) == other.order(queue, view)

    def test_order_equal_requests_stay_as_they_stood(self, make_policy: MakePolicy) -> None:
        """Requests that differ only in their place in the queue keep their order."""
        if not self.keeps_ties:
            return
        view = QueueView(0, RadixNode.new_root(), frozenset(), 100)
        queue = [waiting_request(f"r{i:02}", (1, 20), entry=i) for i in range(20)]
        assert make_policy().order(queue, view) == queue


MakeRule = Callable[[], FairnessRule]
MakeAdmission = Callable[[], Admission]
_PASS_NS = 50_000_000
_NUM_PASSES = 30
# What a fairness rule may set in a request.
_OF_FAIRNESS = ("is_aged", "may_overdraw", "first_pass")


def _queues() -> list[list[SglangRequest]]:
    return [varied_queue(seed, warm_cache()) for seed in range(8)]


def _rids(requests: object) -> list[str]:
    assert isinstance(requests, list | tuple)
    return [request.rid for request in requests]


class FairnessContract(Contract):
    """Fixture `make_rule: Callable[[], FairnessRule]`."""

    fixture = "make_rule"
    kind = FAIRNESS
    guard = GuardedFairness

    def context(self) -> tuple[object, ...]:
        return (SchedulerConfig(),)

    def test_fairness_any_order_has_the_same_requests(self, make_rule: MakeRule) -> None:
        """In every pass each waiting request is there exactly once."""
        for queue in _queues():
            rule = make_rule()
            for number in range(_NUM_PASSES):
                ordered = rule.reorder(list(queue), number * _PASS_NS, frozenset())
                assert sorted(map(id, ordered)) == sorted(map(id, queue))
                rule.note_admitted(number % 3)
            assert rule.reorder([], 0, frozenset()) == []

    def test_fairness_same_passes_give_the_same_orders(self, make_rule: MakeRule) -> None:
        """Two equal rules give equal orders, pass by pass, and change nothing that others need."""
        for queue, twin in zip(_queues(), _queues(), strict=True):
            one, other = make_rule(), make_rule()
            before = [facts_of(request, _OF_FAIRNESS) for request in queue]
            for number in range(_NUM_PASSES):
                orders = [
                    rule.reorder(list(requests), number * _PASS_NS, frozenset())
                    for rule, requests in ((one, queue), (other, twin))
                ]
                assert _rids(orders[0]) == _rids(orders[1])
                for rule in (one, other):
                    rule.note_admitted(number % 2)
            assert [facts_of(request, _OF_FAIRNESS) for request in queue] == before

    def test_fairness_the_time_of_aging_stays(self, make_rule: MakeRule) -> None:
        """`ages_ns` depends on the request alone: else fast-forward would miss the time."""
        for queue in _queues():
            rule, fresh = make_rule(), make_rule()
            times = [rule.ages_ns(request) for request in queue]
            rule.reorder(list(queue), 10**10, frozenset())
            rule.note_admitted(1)
            assert [rule.ages_ns(request) for request in queue] == times
            assert [fresh.ages_ns(request) for request in queue] == times


class AdmissionContract(Contract):
    """Fixture `make_admission: Callable[[], Admission]`."""

    fixture = "make_admission"
    kind = ADMISSION
    guard = GuardedAdmission

    def context(self) -> tuple[object, ...]:
        return (SchedulerConfig(),)

    def test_admission_candidates_wait_and_keep_their_order(
        self, make_admission: MakeAdmission
    ) -> None:
        """However many slots are free: one or more of the waiting requests, in their order."""
        for queue in _queues():
            admission = make_admission()
            for num_slots in (0, 1, 5, 1000, *[2] * _NUM_PASSES):
                chosen = admission.candidates(queue, num_slots)
                places = [queue.index(request) for request in chosen]
                assert places == sorted(set(places))
                assert places
            assert list(admission.candidates([], 3)) == []

    def test_admission_same_passes_give_the_same_candidates(
        self, make_admission: MakeAdmission
    ) -> None:
        """Two equal admissions select the same, and change nothing."""
        one, other = make_admission(), make_admission()
        for queue in _queues():
            before = list(queue), [facts_of(request) for request in queue]
            for _ in range(_NUM_PASSES):
                assert list(one.candidates(queue, 4)) == list(other.candidates(queue, 4))
            assert (queue, [facts_of(request) for request in queue]) == before
