"""The host is held up while it launches the kernels of a step without a graph."""

from itertools import pairwise

import pytest
from hypothesis import given

from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.support.launched_latency import LaunchedLatency
from tests.support.random_scenarios import random_scenarios
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

MS = 1_000_000


def launched(*, device_ms, host_ms, launch_ms, graph_rows):
    """Every step takes as long; a launch takes 1 us longer for each token."""
    times = {"per_prefill_token_s": 0.0, "per_decode_request_s": 0.0, "per_context_token_s": 0.0}
    model = linear_latency(step_s=device_ms / 1000, host_s=host_ms / 1000, **times)
    return LaunchedLatency(model, launch_ms * MS, graph_rows)


def starts_and_ends(served):
    return [(step["t_start_ns"] / MS, step["t_end_ns"] / MS) for step in served.steps]


def test_launch_worked_example():
    """Chunks of 1,000 tokens: host 2 ms, launch 9 + 1 ms, device 4 ms. Decode steps are graphs.

    chunk 1: launch 2 to 12. The device works meanwhile, and ends at 12 with the last kernel.
    chunk 2: decided at 12, launch 14 to 24, device 14 to 24.
    decode 1: decided at 24, ready at 26: device 26 to 30. Its graph needs no launch.
    decode 2: decided at 26, ready at 28, device 30 to 34: from here on the host is hidden.
    """
    latency = launched(device_ms=4, host_ms=2, launch_ms=9, graph_rows=8)
    config = SchedulerConfig(chunked_prefill_size=1_000, page_size=1)
    served = serve(listed([scripted("a", (1, 2_000), output=4)]), config, [latency])
    assert starts_and_ends(served)[:5] == [(2, 12), (14, 24), (26, 30), (30, 34), (34, 38)]
    # The result of chunk 2 is processed when decode 1 is ready: its token is known at 26 ms.
    assert served.request("a")["first_token_ns"] == 26 * MS
    assert [step.get("launch_ns") for step in served.steps[:3]] == [10 * MS, 10 * MS, None]


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize(
    ("overlap", "device_ms", "period_ms"), [(True, 4, 11.001), (True, 30, 30), (False, 4, 11.001)]
)
def test_launch_of_decode_steps_above_the_largest_graph(
    overlap, device_ms, period_ms, fast_forward
):
    """A step each host + launch, or each device time, whichever is longer."""
    latency = launched(device_ms=device_ms, host_ms=2, launch_ms=9, graph_rows=0)
    config = SchedulerConfig(disable_overlap_schedule=not overlap)
    workload = listed([scripted("a", (1, 10), output=30)])
    served = serve(workload, config, [latency], fast_forward=fast_forward)
    ends = [end for _, end in starts_and_ends(served)][3:]
    assert {round(after - before, 6) for before, after in pairwise(ends)} == {period_ms}


@given(random_scenarios())
def test_launch_any_scenario_keeps_the_recursion(scenario):
    """Of each server: launch begins at b, and the step before ended at e.

    A step starts at max(b, e) and ends no sooner than its launch. The next step is decided when the
    launch and the step before have ended, or later.
    """
    served = serve(scenario.workload, scenario.config, scenario.latencies(), check=False)
    by_server = {}
    for step in served.steps:
        by_server.setdefault(step["replica"], []).append(step)
    overlaps = scenario.config.overlaps
    for steps in by_server.values() if scenario.config.micro_batches == 1 else ():
        end_ns = 0
        for step, after in pairwise([*steps, None]):
            begin_ns = step["t_decided_ns"] + step["host_ns"]
            launched_ns = begin_ns + step.get("launch_ns", 0)
            assert step["t_start_ns"] == max(begin_ns, end_ns)
            assert step["t_end_ns"] >= launched_ns
            free_ns = max(launched_ns, end_ns) if overlaps else step["t_end_ns"]
            assert after is None or after["t_decided_ns"] >= free_ns
            end_ns = step["t_end_ns"]
