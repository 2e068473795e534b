"""When a running request makes room for a more important one (rule 13)."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.prefill.manager import preempt_for
from sim.testing.contracts.policies import waiting_request
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted

_LATER_NS = 40_000_000


def run(*late, slots=1, running=(("a", 0),), **settings):
    """Serve long requests `(rid, priority)`, then later ones; returns the run."""
    settings = {"enable_priority_scheduling": True, "max_running_requests": slots} | settings
    early = [
        scripted(rid, (i, 20), output=40, priority=priority, arrival_ns=i)
        for i, (rid, priority) in enumerate(running)
    ]
    coming = [
        scripted(rid, (50 + i, 20), output=5, priority=priority, arrival_ns=_LATER_NS)
        for i, (rid, priority) in enumerate(late)
    ]
    return serve(listed(early + coming), SchedulerConfig(**settings))


def preempted(served):
    return [pair for step in served.steps for pair in step["preempted"]]


@pytest.mark.parametrize(("gap", "happens"), [(10, False), (11, True)])
@pytest.mark.parametrize("low_first", [False, True])
def test_preemption_needs_more_than_the_threshold(gap, happens, low_first):
    """A gap of 10 is not enough, 11 is, in either direction."""
    priority = -gap if low_first else gap
    served = run(("b", priority), schedule_low_priority_values_first=low_first)
    assert preempted(served) == ([["b", ["a"]]] if happens else [])
    assert served.request("a")["preemptions"] == happens
    ends = {rid: served.request(rid)["finish_ns"] for rid in "ab"}
    assert (ends["b"] < ends["a"]) == happens


def test_preempted_request_keeps_its_outputs():
    """It comes back with a longer prefill and ends with the output it would have had."""
    served = run(("b", 50))
    rows = [row for step in served.steps for row in step["prefill"] if row[0] == "a"]
    assert len(rows) == 2
    assert rows[1][1] + rows[1][2] > 20
    assert served.request("a")["output_tokens"] == 40


def test_preemption_with_a_free_slot_does_not_happen():
    """Room for both: nobody has to go."""
    assert preempted(run(("b", 50), slots=2)) == []


def test_preemption_disabled_does_not_happen():
    """Priorities order the queue only."""
    assert preempted(run(("b", 50), disable_priority_preemption=True)) == []


def test_preemption_for_lack_of_memory_does_not_happen():
    """Slots there are; the important request waits for memory as others do."""
    served = run(("b", 50), slots=8, max_total_tokens=66)
    assert preempted(served) == []
    assert served.request("b")["scheduled_ns"] >= served.request("a")["finish_ns"]


def test_preemption_victims_least_important_then_latest():
    """Each newcomer takes one: first the later of the two least important, then the other."""
    running = [("a", 1), ("b", 0), ("c", 0)]
    served = run(("x", 60), ("y", 50), slots=3, running=running)
    assert preempted(served) == [["x", ["c"]], ["y", ["b"]]]


def victims_of(make_pass, *, limit, fill_len=0, threshold=10):
    """Three rows of 40 tokens that reserve 30 each, in a pool that is 10 short of that."""
    rows = [
        (waiting_request(rid, (i, 40), limit=30, priority=0, entry=i), 0)
        for i, rid in enumerate("abc")
    ]
    one = make_pass(
        max_total_tokens=200,
        ratio=1.0,
        running=rows,
        enable_priority_scheduling=True,
        priority_scheduling_preemption_threshold=threshold,
    )
    candidate = waiting_request("x", (9, 50), limit=limit, priority=20)
    candidate.fill_len = fill_len
    victims = preempt_for(
        candidate,
        config=one.config,
        adder=one.adder,
        running=one.running,
        release=lambda request, num_remaining: None,
    )
    return "".join(victim.rid for victim in victims), one


@pytest.mark.parametrize(
    ("limit", "fill_len", "expected"),
    [
        (1, 0, "c"),
        (20, 0, "c"),
        (21, 0, "bc"),
        (50, 0, "bc"),
        (80, 0, "abc"),
        (81, 0, ""),
        (30, 20, "bc"),
        (31, 50, ""),
    ],
)
def test_preemption_takes_as_many_as_the_candidate_lacks(make_pass, limit, fill_len, expected):
    """Prompt (0 if never tried) + output + 10 missing, against 30 a victim; in batch order."""
    victims, one = victims_of(make_pass, limit=limit, fill_len=fill_len)
    assert victims == expected
    kept = "".join(request.rid for request in one.running.requests)
    assert kept == "".join(rid for rid in "abc" if rid not in expected)
    assert one.adder.budget.total_offset == 90 - 30 * len(expected)


def test_preemption_too_small_a_gap_takes_nobody(make_pass):
    """A gap of exactly the threshold does not count."""
    assert victims_of(make_pass, limit=1, threshold=20)[0] == ""
    assert victims_of(make_pass, limit=1, threshold=19)[0] == "c"


@pytest.mark.parametrize(("usual", "happens"), [(None, True), (45, False)])
def test_request_without_a_priority_has_the_default_one(usual, happens):
    """Without a default it is the least important, so that any priority preempts it."""
    served = run(("b", 50), running=(("a", None),), default_priority_value=usual)
    assert preempted(served) == ([["b", ["a"]]] if happens else [])


def test_default_priority_needs_priorities():
    """As in SGLang: without them a request is the least important, whatever the default is."""
    assert SchedulerConfig(default_priority_value=5).usual_priority < -(2**62)
    assert SchedulerConfig(schedule_policy="priority", default_priority_value=5).usual_priority == 5
