"""What every fairness rule and every admission promises."""

from collections.abc import Callable

from sim.sglang.config import SchedulerConfig
from sim.sglang.request import SglangRequest
from sim.sglang.scheduler.fairness import FairnessRule
from sim.sglang.scheduler.packing import Admission
from sim.sglang.user_rules import ADMISSION, FAIRNESS, GuardedAdmission, GuardedFairness
from sim.testing.contracts.contract import Contract
from sim.testing.contracts.policies import facts_of, varied_queue, warm_cache
from sim.user.objects import UserObject

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

    def context(self) -> tuple[object, ...]:
        return (SchedulerConfig(),)

    def guarded(self, user: UserObject) -> FairnessRule:
        return GuardedFairness(user)

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
            for step in range(_NUM_PASSES):
                orders = [
                    rule.reorder(list(requests), step * _PASS_NS, frozenset())
                    for rule, requests in ((one, queue), (other, twin))
                ]
                assert _rids(orders[0]) == _rids(orders[1])
                for rule in (one, other):
                    rule.note_admitted(step % 2)
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

    def context(self) -> tuple[object, ...]:
        return (SchedulerConfig(),)

    def guarded(self, user: UserObject) -> Admission:
        return GuardedAdmission(user)

    def test_admission_candidates_wait_and_keep_their_order(
        self, make_admission: MakeAdmission
    ) -> None:
        """At least one of the waiting requests, however many slots are free."""
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
