"""When memory or slots run out: retraction one at a time, preemption under a slot limit only."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import serve
from tests.support.workloads import scripted


@pytest.fixture(scope="module")
def twelve():
    """Twelve requests of 100 + 200 tokens: admission charges 16 outputs each, so all start."""
    requests = [scripted(f"r{i}", (10 + i, 100), output=200) for i in range(12)]
    config = SchedulerConfig(
        max_total_tokens=1_750,
        schedule_conservativeness=0.1,
        clip_max_new_tokens=16,
        disable_overlap_schedule=True,
    )
    return serve(listed(requests), config)


def test_retraction_growing_requests_go_back_one_at_a_time(twelve):
    """Seven times; equal progress and prompts, so the last in batch order goes first."""
    retracted = [step["retracted"] for step in twelve.steps if step["retracted"]]
    assert retracted == [[f"r{i}"] for i in range(11, 4, -1)]
    assert twelve.log.requests.status == ["finished"] * 12


def test_retraction_raises_the_new_token_ratio(twelve):
    """After a retraction more is reserved: tokens generated + 20 a row over limits + 1."""
    steps = twelve.steps
    number = next(i for i, step in enumerate(steps) if step["retracted"])
    num_generated = steps[number]["ctx"] - 11 * 100
    assert steps[number]["n_decode"] == 11
    assert steps[number - 1]["ratio"] < 0.07
    assert steps[number]["ratio"] == (num_generated + 20 * 11) / (11 * 200 + 1)


def serve_two_urgent(**limits):
    """Six requests run, two of them of priority 0; two of priority 20 arrive."""
    requests = [
        scripted(f"lo{i}", (10 + i, 200), output=100, priority=0 if i % 4 == 0 else 10)
        for i in range(6)
    ]
    requests += [
        scripted(f"hi{i}", (50 + i, 200), output=50, priority=20, arrival_ns=200_000_000)
        for i in range(2)
    ]
    config = SchedulerConfig(
        enable_priority_scheduling=True, disable_overlap_schedule=True, **limits
    )
    return serve(listed(requests), config)


def test_preemption_slot_limit_gives_up_the_least_important_in_one_pass():
    """lo0 and lo4 are 20 below, the others 10, which is not more than the threshold."""
    served = serve_two_urgent(max_running_requests=6, max_total_tokens=32_000)
    preempting = [step for step in served.steps if step["preempted"]]
    assert len(preempting) == 1
    assert preempting[0]["preempted"] == [["hi0", ["lo4"]], ["hi1", ["lo0"]]]
    assert preempting[0]["prefill"] == [["hi0", 0, 200], ["hi1", 0, 200]]
    assert preempting[0]["queue"] == 2


def test_preemption_memory_limit_preempts_nobody():
    """With slots to spare, NO_TOKEN only ends the pass: hi1 waits for memory."""
    served = serve_two_urgent(max_running_requests=64, max_total_tokens=2_000)
    assert not any(step["preempted"] for step in served.steps)
    waits = [served.request(rid)["scheduled_ns"] - 200_000_000 for rid in ("hi0", "hi1")]
    assert waits[0] < 10_000_000 < waits[1]
