"""Policies for tool calls: times to live, how past tells future, and what waits for what."""

from importlib import import_module
from math import exp, log

import pytest

from sim.core.request import Status
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import QueueView
from tests.policies.conftest import SHIPPED

S = 10**9


@pytest.fixture
def policy():
    def make(name, **settings):
        return getattr(import_module("tool_calls"), name)(SchedulerConfig(), **settings)

    return make


@pytest.fixture
def ask():
    """A policy's order at a time, with the sessions of which KV is kept."""

    def order(policy, requests, now_s=0, kept=()):
        view = QueueView(now_s * S, RadixNode.new_root(), frozenset(), 0, (), frozenset(kept))
        return [request.rid for request in policy.order(requests, view)]

    return order


@pytest.fixture
def turn(make_request):
    """A request of a session that comes at a time, and calls a tool unless it is the last."""

    def make(rid, session, *, at_s=0.0, calls_tool=True, prompt=10):
        request = make_request(rid, arrival_ms=round(1000 * at_s), prompt=prompt)
        request.spec.session, request.spec.calls_tool = session, calls_tool
        return request

    return make


def end(request):
    request.status = Status.FINISHED
    return request


@pytest.mark.parametrize(
    ("tools_s", "benefit_s", "best_s"),
    [
        ([1.0, 1.0, 1.0, 9.0], 2.0, 1.0),  # 0.75 x 2 - 1 = 0.5; to wait for all costs 9
        ([1.0, 5.0], 20.0, 5.0),  # 20 - 5 = 15, against 10 - 1 = 9
        ([1.0, 5.0], 1.5, 0.0),  # 0.75 - 1 is a loss
        ([0.0, 3.0], 1.0, 0.0),
        ([4.0], 3.0, 0.0),
    ],
)
def test_time_to_live_is_the_one_with_the_largest_reward(tools_s, benefit_s, best_s):
    assert import_module("tool_calls").best_time_s(tools_s, benefit_s) == best_s


def test_unknown_tools_are_exponential(policy, turn):
    """The reward (1 - exp(-t)) x benefit - t is largest at the logarithm of the benefit."""
    continuum = policy("Continuum", prefill_ms=300_000, square_ms=0)
    benefit_s = 10 / 1000 * 300
    ttl_s = continuum.keep_ns(end(turn("r", "a")), 0) / S
    assert ttl_s == pytest.approx(log(benefit_s))

    def reward(t):
        return (1 - exp(-t)) * benefit_s - t

    assert reward(ttl_s) > max(reward(0.9 * ttl_s), reward(1.1 * ttl_s))


def test_known_tools_are_counted_from_the_answer_to_the_next_request(policy, turn, ask):
    continuum = policy("Continuum", history=2, prefill_ms=1_000_000, square_ms=0)
    for number in range(3):
        first = turn(f"first {number}", f"{number}")
        ask(continuum, [first])
        continuum.keep_ns(end(first), 2 * S)
        ask(continuum, [turn(f"second {number}", f"{number}", at_s=2.5 + number)])
    assert continuum.tools_s == {"": [0.5, 1.5, 2.5]}
    # The benefit is 10 s: 10 - 2.5 is more than 20 / 3 - 1.5.
    assert continuum.keep_ns(end(turn("third", "a")), 9 * S) == 2.5 * S


def test_last_answer_is_not_kept(policy, turn):
    for name in ("Continuum", "InferCept"):
        rule = policy(name, prefill_ms=1_000_000)
        assert rule.keep_ns(end(turn("r", "a", calls_tool=False)), 0) == 0
        assert rule.keep_ns(end(turn("r", "a")), 0) > 0


def test_waits_of_requests_whose_kv_was_not_kept_count(policy, turn, ask):
    """Those of first requests do not."""
    continuum = policy("Continuum")
    first = turn("first", "a")
    ask(continuum, [first], now_s=3)
    first.scheduled_ns = 3 * S
    ask(continuum, [], now_s=4)
    continuum.keep_ns(end(first), 5 * S)
    for rid, kept in (("kept", ["a"]), ("lost", [])):
        request = turn(rid, "a", at_s=6)
        ask(continuum, [request], now_s=10, kept=kept)
        request.scheduled_ns = 10 * S
        ask(continuum, [], now_s=11)
        continuum.keep_ns(end(request), 6 * S)
    assert list(continuum.queue_s) == [4.0]


def test_programs_go_by_their_first_request_and_kept_ones_before_all(policy, turn, ask):
    waiting = [turn("new", "b", at_s=1), turn("newer", "c", at_s=2)]
    for name, order in (
        ("ProgramsInOrder", ["old", "new", "newer"]),
        ("InferCept", ["old", "new", "newer"]),
        ("Continuum", ["newer", "old", "new"]),
    ):
        rule = policy(name)
        begun = turn("first", "a")
        ask(rule, [begun])
        rest = [*waiting, turn("old", "a", at_s=3)]
        assert ask(rule, rest, now_s=3, kept=["c"]) == order, name


def test_infercept_keeps_as_long_as_computing_again_would_waste(policy, turn, ask):
    """Of a request of 1,000 tokens beside one of 3,000: four times what a prefill takes."""
    rule = policy("InferCept", prefill_ms=100, square_ms=0)
    other, mine = turn("other", "b", prompt=3000), turn("mine", "a", prompt=1000)
    ask(rule, [other, mine])
    for request in (other, mine):
        request.scheduled_ns, request.status = 0, Status.RUNNING
    ask(rule, [])
    assert rule.keep_ns(end(mine), 0) == pytest.approx(0.1 * 4 * S)


def test_past_tells_the_future_of_programs_of_equal_length():
    programs = import_module("tool_calls").Programs()
    assert programs.eta == 1
    for length in (5, 5, 5):
        for sent in range(length):
            programs.answered("p", is_over=sent == length - 1)
    assert programs.eta == pytest.approx(1)
    for length in (1, 40, 2, 60):
        for sent in range(length):
            programs.answered("p", is_over=sent == length - 1)
    assert -1 <= programs.eta < 0.9


def test_continuum_finds_more_and_ends_sessions_sooner(run):
    """Some of the agents of the shipped scenario, three times as fast."""
    path, few = SHIPPED / "tool-calls.yaml", "workload.sessions=30"
    faster = "workload.arrivals.rate_rps=0.3"
    by_arrival, keeps = (
        run(path, few, faster, f"scheduler.schedule_policy={policy}")
        for policy in ("fcfs", "tool_calls:Continuum")
    )
    assert keeps[1]["cache_hit_rate_pct"] > 5 + by_arrival[1]["cache_hit_rate_pct"]
    assert max(keeps[0].requests.finish_ns) < 0.95 * max(by_arrival[0].requests.finish_ns)
