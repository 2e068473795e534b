"""When a server looks for new requests (rule 19 of docs/explanation/sglang.md)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.batch import ForwardMode
from sim.des.deployment import Deployment
from sim.des.run import RunOptions, simulate
from sim.engine.live_requests import InputQueue
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

EXTEND, DECODE, MIXED = ForwardMode.EXTEND, ForwardMode.DECODE, ForwardMode.MIXED


def polls(queue, *modes):
    """Which of the decisions poll that follow launches of these modes; `x`: one that does."""
    seen = ""
    for mode in modes:
        queue.note_decision(mode, is_idle=False)
        queue.requests.append("r")
        seen += "x" if queue.poll() else "-"
    return seen


@pytest.mark.parametrize(
    ("interval", "expected"), [(1, "xxxxxxxx"), (3, "x--x-x--"), (1002, "--x--x--")]
)
def test_polls_follow_from_what_was_launched(interval, expected):
    """A decode step counts 1 and a step with prefill rows 1000; a poll resets the counter."""
    queue = InputQueue(interval)
    queue.poll()  # an idle server always looks
    modes = [EXTEND, DECODE, DECODE, DECODE, None, MIXED, DECODE, None]
    assert polls(queue, *modes) == expected


def test_poll_of_an_idle_server_comes_at_once():
    """It decides again and again, and so reaches any interval in no time."""
    queue = InputQueue(30)
    assert polls(queue, EXTEND, DECODE) == "x-"
    queue.note_decision(None, is_idle=True)
    assert queue.poll()


@given(st.integers(1, 40), st.integers(0, 50), st.integers(0, 120))
def test_polls_of_many_decode_steps_are_those_of_single_ones(interval, num_before, num_steps):
    """`next_poll` and `pass_decisions` agree with one decision at a time."""
    one_by_one, at_once = InputQueue(interval), InputQueue(interval)
    for queue in (one_by_one, at_once):
        polls(queue, EXTEND, *[DECODE] * num_before)
        queue.note_decision(DECODE, is_idle=False)
        queue.requests.clear()
    expected = [at_once.next_poll(step) == step for step in range(num_steps)]
    seen = polls(one_by_one, *[DECODE] * num_steps)
    assert seen == "".join("x" if polls_here else "-" for polls_here in expected)
    at_once.pass_decisions(num_steps)
    assert at_once.num_unpolled_steps == one_by_one.num_unpolled_steps


def busy_server(interval, *, overlap=True, arrival_ns=1_000_000_000):
    """`a` decodes 600 tokens; `b` and `c` arrive in between. Returns b's wait in steps."""
    work = listed(
        [
            scripted("a", (1, 100), output=600),
            scripted("b", (2, 50), output=1, arrival_ns=arrival_ns),
            scripted("c", (3, 50), output=1, arrival_ns=arrival_ns + 1_000_000),
        ]
    )
    config = SchedulerConfig(scheduler_recv_interval=interval, disable_overlap_schedule=not overlap)
    served = serve(work, config)
    steps = [step for step in served.steps if step["t_decided_ns"] >= arrival_ns]
    first = next(i for i, step in enumerate(steps) if step["prefill"])
    return first, served


@pytest.mark.parametrize("overlap", [True, False])
def test_arrival_waits_for_the_next_poll(overlap):
    """At most `interval` decode steps, and then all who arrived meanwhile are received."""
    waits = [
        busy_server(30, overlap=overlap, arrival_ns=10**9 + shift * 10**7)[0] for shift in range(20)
    ]
    assert 20 <= max(waits) < 30
    assert len(set(waits)) > 5
    _, served = busy_server(30, overlap=overlap)
    assert served.request("b")["scheduled_ns"] == served.request("c")["scheduled_ns"]
    assert busy_server(1, overlap=overlap)[0] == 0


def test_decode_runs_continue_past_an_arrival():
    """Fast-forward ends a run at the poll, not at the arrival: few runs, however many arrive."""
    requests = [scripted("a", (1, 100), output=900)]
    requests += [
        scripted(f"b{i}", (2 + i, 50), output=300, arrival_ns=10**9 + i * 7_777_777)
        for i in range(40)
    ]
    config = SchedulerConfig(scheduler_recv_interval=200)
    options = RunOptions(check=True)
    deployment = Deployment.of_one_kind(config, [linear_latency()])
    log = simulate(listed(requests), deployment, options)
    assert len(log.steps.num_steps) < 60


def test_idle_server_receives_at_once():
    """With nothing to do the interval costs no time."""
    late = scripted("b", (2, 50), output=40, arrival_ns=60 * 10**9)
    work = listed([scripted("a", (1, 100), output=45), late])
    served = serve(work, SchedulerConfig(scheduler_recv_interval=30))
    assert served.request("b")["scheduled_ns"] == late.spec.arrival_ns
