"""A benchmark's phases on a simulated server, and a warm-up that no metric counts."""

import json
from dataclasses import replace

import pytest

from sim.metrics.summary import summarise
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import Phase, Turn, listed
from tests.support.serve import serve
from tests.support.workloads import scripted


def requests(name, number, **options):
    return [
        Turn(0, scripted(f"{name}{i}", (100 * sum(name.encode()) + i, 20 + i), output=4 + i % 3,
                         **options))
        for i in range(number)
    ]  # fmt: skip


def warm(turns):
    for turn in turns:
        turn.request.spec.warm_up = True
    return turns


WARM_UP = Phase(turns=warm(requests("w", 5)), places=2)
MEASURED = Phase(turns=requests("m", 9), places=3, pause_ns=1_000)


@pytest.mark.parametrize("overlap", [True, False])
def test_next_request_is_sent_when_one_is_over(overlap):
    """At most three are under way, and always three while requests are left."""
    config = SchedulerConfig(disable_overlap_schedule=not overlap)
    served = serve(listed(phases=[WARM_UP, MEASURED]), config)
    rows = [served.request(f"m{i}") for i in range(9)]
    begin_ns = max(served.request(f"w{i}")["finish_ns"] for i in range(5)) + 1_000
    assert [row["arrival_ns"] for row in rows[:3]] == [begin_ns] * 3
    ends_ns = sorted(row["finish_ns"] for row in rows)
    assert [row["arrival_ns"] for row in rows[3:]] == ends_ns[:6]


def test_warm_up_is_in_the_log_and_in_no_metric():
    """Requests, steps and gaps between tokens are those of the measured phase."""
    config = SchedulerConfig(disable_overlap_schedule=True, disable_radix_cache=True)
    both = serve(listed(phases=[WARM_UP, MEASURED]), config)
    alone = serve(listed(phases=[MEASURED]), config)
    lines = [json.loads(line) for line in both.text.splitlines()]
    marked = {line["rid"] for line in lines if line.get("warm_up")}
    assert marked == {f"w{i}" for i in range(5)}
    summary, expected = summarise(both.log), summarise(alone.log)
    assert summary["completed"] == 9
    assert summary == expected


def test_phase_goes_on_after_rejected_requests():
    """Requests that are turned away are over at once."""
    big = [Turn(0, scripted(f"big{i}", (i, 5_000), output=4)) for i in range(3)]
    phases = [Phase(turns=warm(big), places=1), Phase(turns=requests("m", 2), places=1)]
    served = serve(listed(phases=phases), SchedulerConfig(max_total_tokens=1_000))
    assert served.request("big2")["status"] == "rejected"
    assert served.request("m1")["status"] == "finished"
    assert summarise(served.log)["rejected"] == 0


@pytest.mark.parametrize("overlap", [True, False])
def test_warm_up_is_left_out_alike_with_and_without_fast_forward(overlap):
    """Log, gaps between tokens and metrics."""
    config = SchedulerConfig(disable_overlap_schedule=not overlap)
    workload = listed(phases=[WARM_UP, replace(MEASURED, pause_ns=0)])
    fast, slow = (serve(workload, config, fast_forward=fast) for fast in (True, False))
    assert fast.text == slow.text
    assert summarise(fast.log) == summarise(slow.log)
    outputs = sum(turn.request.script.num_tokens - 1 for turn in MEASURED.turns)
    assert fast.log.token_gaps.count.sum() == outputs
