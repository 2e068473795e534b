"""INV-13, FAIRNESS_T: when a request has aged, no later request is admitted before it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.latency.kinds.linear import LinearLatency
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import POLICIES
from sim.sglang.scheduler.waiting.fairness import FairnessT
from sim.workload.workload import listed
from tests.support.random_scenarios import random_scenarios, scheduler_configs
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

MS = 1_000_000


def overtaken(served, config, replica=0):
    """Admissions that break the rule: (step, admitted rid, rid of the aged request)."""
    t_ns = config.fairness.t_ns
    lines = [line for line in served.steps if line["replica"] == replica]
    requests = served.log.requests
    arrival_ns = dict(zip(requests.rid, requests.arrival_ns.tolist(), strict=True))
    mine = [r for r, where in zip(requests.rid, requests.replica, strict=True) if where == replica]
    waiting = {rid for rid in mine if requests.status[requests.rid.index(rid)] != "rejected"}
    found, chunked = [], None
    for line in lines:
        now_ns = line["t_decided_ns"]
        # Requests that this decision put back wait from now on, but did not wait in this pass.
        admitted = [rid for rid, _, _ in line["prefill"] if rid != chunked]
        aged = {rid for rid in waiting if arrival_ns[rid] + t_ns <= now_ns}
        passed_over = aged - set(admitted)
        if passed_over:
            oldest_ns = min(arrival_ns[rid] for rid in passed_over)
            late = [rid for rid in admitted if arrival_ns[rid] > oldest_ns]
            found += [(line["step"], rid, sorted(passed_over)) for rid in late]
        waiting -= set(admitted)
        waiting |= set(line["retracted"])
        waiting |= {victim for _, victims in line["preempted"] for victim in victims}
        waiting -= set(line["aborted"])
        chunked = line["chunked"]
    return found


@given(random_scenarios(scheduler_configs()), st.sampled_from((0, 1, 2 * MS, 30 * MS)))
def test_fairness_aged_requests_are_not_overtaken(scenario, t_ns):
    """Any policy, pool, chunking, priorities, servers and clients; every invariant checked."""
    config = replace(scenario.config, fairness=FairnessT(t_ns))
    served = serve(scenario.workload, config, scenario.latencies())
    for replica in range(scenario.replicas):
        assert overtaken(served, config, replica) == []


class CountedLatency(LinearLatency):
    """Counts how often many decode steps are taken at once."""

    num_runs = 0

    def decode_run_ns(self, first, num_steps):
        self.num_runs += 1
        return super().decode_run_ns(first, num_steps)


def test_fairness_request_that_left_the_queue_does_not_age():
    """It would have aged in the middle of its 400 decode steps: two runs, not one for each step."""
    latency = CountedLatency(
        step_s=0.005, per_prefill_token_s=0, per_decode_request_s=0, per_context_token_s=0
    )
    config = SchedulerConfig(fairness=FairnessT(300 * MS))
    served = serve(listed([scripted("a", (1, 20), output=400)]), config, [latency])
    assert served.num_ended == 1
    assert latency.num_runs <= 2


def test_fairness_aged_requests_are_not_preempted():
    """r0 would be the first in the queue again, and be preempted once more by the next request."""
    config = SchedulerConfig(
        max_total_tokens=320,
        page_size=64,
        max_running_requests=1,
        schedule_policy="lof",
        fairness=FairnessT(2 * MS),
        enable_priority_scheduling=True,
        schedule_low_priority_values_first=True,
        priority_scheduling_preemption_threshold=0,
    )
    requests = [
        scripted(f"r{i}", (1000 + i, 20), output=8, priority=3 - i, arrival_ns=i * MS)
        for i in range(3)
    ]
    served = serve(listed(requests), config)
    assert set(served.log.requests.status) == {"finished"}
    assert max(served.log.requests.preemptions) <= 1


@st.composite
def floods(draw):
    """Requests with hot prefixes flood a small pool; cold ones trickle in among them."""
    requests = []
    for i in range(draw(st.integers(10, 40))):
        cold = draw(st.integers(0, 5)) == 0
        prefix = (1000 + i, 40) if cold else (draw(st.integers(1, 2)), 40)
        tail = (2000 + i, draw(st.integers(1, 20)))
        requests.append(
            scripted(f"r{i}", prefix, tail, output=draw(st.integers(1, 12)), arrival_ns=i * 3 * MS)
        )
    return listed(requests)


@given(floods(), scheduler_configs(), st.sampled_from((0, 10 * MS, 50 * MS)))
def test_fairness_holds_when_hot_prefixes_flood(workload, config, t_ns):
    """What FAIRNESS_T is for."""
    config = replace(config, fairness=FairnessT(t_ns))
    assert overtaken(serve(workload, config), config) == []


def starving(num_hot):
    """A stream of requests with one hot prefix, as fast as the server; one cold request early."""
    hot = [
        scripted(f"h{i}", (1, 400), (10 + i, 8), output=4, arrival_ns=i * 4 * MS)
        for i in range(num_hot)
    ]
    cold = scripted("cold", (2, 408), output=4, arrival_ns=30 * MS)
    return listed(sorted([*hot, cold], key=lambda request: request.spec.arrival_ns))


STARVED = SchedulerConfig(
    schedule_policy="lpm", page_size=1, max_total_tokens=900, max_running_requests=1
)


def wait_of_cold_ms(num_hot, fairness):
    served = serve(starving(num_hot), replace(STARVED, fairness=fairness), [linear_latency()])
    cold = served.request("cold")
    return (cold["scheduled_ns"] - cold["arrival_ns"]) / MS, cold["aged"]


def test_fairness_without_it_a_cold_request_waits_as_long_as_hot_ones_come():
    """Pure LPM breaks any bound: twice as many hot requests, twice the wait."""
    few, _ = wait_of_cold_ms(20, None)
    many, _ = wait_of_cold_ms(40, None)
    assert many > 1.8 * few > 500


@pytest.mark.parametrize("t_ms", [0, 50, 200])
def test_fairness_bounds_the_wait_whatever_comes(t_ms):
    """T, and what was running then; aged requests are counted."""
    waits = [wait_of_cold_ms(num_hot, FairnessT(t_ms * MS)) for num_hot in (20, 40)]
    assert waits[0] == waits[1]
    wait_ms, aged = waits[0]
    # Before the cold request, at T: the hot ones that arrived earlier, and the running one.
    assert wait_ms <= max(t_ms, 30 * 8) + 40
    assert aged == 1


def decisions(workload, config):
    fields = ("mode", "prefill", "n_decode", "retracted", "queue", "free")
    return [[step[name] for name in fields] for step in serve(workload, config).steps]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_fairness_of_no_wait_is_first_come_first_served(policy):
    """T = 0 decides what fcfs decides, whatever the policy."""
    workload = starving(30)
    fair = replace(STARVED, schedule_policy=policy, fairness=FairnessT(0), max_running_requests=3)
    fcfs = replace(STARVED, schedule_policy="fcfs", max_running_requests=3)
    assert decisions(workload, fair) == decisions(workload, fcfs)


def test_fairness_of_endless_wait_is_the_policy_alone():
    """A T that no run reaches changes nothing."""
    endless = replace(STARVED, fairness=FairnessT(10**15))
    assert decisions(starving(30), endless) == decisions(starving(30), STARVED)


def test_fairness_check_finds_what_pure_lpm_does():
    """The property is not empty: without the rule, hot requests overtake an aged one."""
    served = serve(starving(30), STARVED, [linear_latency()])
    broken = overtaken(served, replace(STARVED, fairness=FairnessT(50 * MS)))
    assert any("cold" in passed_over for _, _, passed_over in broken)
