"""Warm-up and cool-down: what is left out, and rates over the window alone."""

import numpy as np
import pytest

from sim.commands.running.simulate import simulate_measured
from sim.core.errors import InputError
from sim.des.run import RunOptions
from sim.metrics.series import Edge, with_window
from sim.metrics.summary import Slo, add_quantiles, request_table, summarise
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.run_logs import request_columns, run_log, step_columns

MS = 1_000_000
SCENARIO = """
name: steady
latency: {kind: linear, step_s: 0.01, per_prefill_token_s: 2.0e-5, per_decode_request_s: 1.0e-4,
          per_context_token_s: 0}
scheduler: {max_total_tokens: 60000, max_running_requests: 64}
slo: {ttft_ms: 300}
workload:
  kind: synthetic
  num_requests: 1500
  arrivals: {kind: poisson, rate_rps: 15}
  prompt_tokens: {kind: uniform, min: 20, max: 400}
  output_tokens: {kind: uniform, min: 20, max: 60}
"""


CLIENTS = (
    "workload={kind: clients, clients: 6, requests_per_client: 99}",
    "workload.think_s={kind: exponential, mean: 0.3}",
    "workload.prompt_tokens={kind: constant, value: 200}",
    "workload.output_tokens={kind: constant, value: 40}",
)


def simulated(*options, fast_forward=True):
    loaded = load_scenario_text(SCENARIO, options)
    return simulate_measured(build(loaded), RunOptions(fast_forward=fast_forward))


def five_requests():
    """One every 100 ms; each answers after 50 ms, and takes 200 ms more for its 5 tokens."""
    arrival_ns = np.arange(5) * 100 * MS
    requests = request_columns(
        arrival_ns=arrival_ns,
        scheduled_ns=arrival_ns,
        first_token_ns=arrival_ns + 50 * MS,
        finish_ns=arrival_ns + 250 * MS,
        prompt_tokens=[10, 20, 30, 40, 50],
        output_tokens=[5] * 5,
        tenant=["a", "b", "a", "b", "a"],
    )
    return run_log(requests, step_columns(t_start_ns=arrival_ns, t_end_ns=arrival_ns + 50 * MS))


def test_window_by_hand():
    """From 200 to 300 ms: one request arrives, one ends; parts of three answers are made."""
    edges = Edge(duration_ns=150 * MS), Edge(duration_ns=100 * MS)
    found = summarise(with_window(five_requests(), *edges), Slo(ttft_ms=60))
    assert found["window"] == {"begin_s": 0.2, "end_s": 0.3}
    assert (found["submitted"], found["completed"], found["simulated_steps"]) == (1, 1, 5)
    assert found["duration"] == pytest.approx(0.1)
    for name in ("request_rate", "request_throughput", "request_goodput"):
        assert found[name] == pytest.approx(10), name
    # One first token, and 50, 100 and 50 of the 200 ms in which four more tokens are made.
    assert found["input_throughput"] == pytest.approx(30 / 0.1)
    assert found["output_throughput"] == pytest.approx((1 + 4 * 200 / 200) / 0.1)
    assert found["concurrency"] == pytest.approx((50 + 100 + 100) / 100)
    tenants = found["tenants"]
    assert [tenants["a"][name] for name in ("submitted", "completed")] == [1, 1]
    assert tenants["a"]["request_throughput"] == pytest.approx(10)
    both = found["hot"]["output_throughput"] + found["cold"]["output_throughput"]
    assert both == pytest.approx(found["output_throughput"])


@pytest.mark.parametrize(
    ("warmup", "cooldown", "rids"),
    [
        (Edge(num_requests=2), None, ["r2", "r3"]),
        (None, Edge(num_requests=2), ["r0", "r1", "r2"]),
        (Edge(duration_ns=100 * MS), Edge(num_requests=2), ["r1", "r2"]),
        (None, Edge(duration_ns=99 * MS), ["r0", "r1", "r2", "r3"]),
        (Edge(num_requests=0), Edge(num_requests=0), ["r0", "r1", "r2", "r3"]),
    ],
)
def test_window_keeps_the_requests_between_its_edges(warmup, cooldown, rids):
    """It ends just before an arrival. The table of requests has the same ones."""
    log = with_window(five_requests(), warmup, cooldown)
    assert request_table(log)["rid"] == rids


def test_window_without_a_request_is_refused():
    """Whichever end takes too much."""
    reason = "leaves no request to measure: 5 requests arrive within 0.4 s"
    for edges in ((Edge(num_requests=5), None), (None, Edge(duration_ns=401 * MS)),
                  (Edge(num_requests=3), Edge(num_requests=2))):  # fmt: skip
        with pytest.raises(InputError, match=reason):
            with_window(five_requests(), *edges)
    with pytest.raises(InputError, match=r"warmup=\{duration_s: 1000\}: leaves no request"):
        simulated("warmup={duration_s: 1000}")


def test_window_leaves_out_the_drain_and_the_empty_start():
    """Achieved throughput in a steady state is the offered load; over the whole run it is less."""
    window = summarise(simulated("warmup={duration_s: 10}"))
    whole = summarise(simulated())
    assert window["request_throughput"] == pytest.approx(window["request_rate"], rel=0.03)
    assert window["concurrency"] > whole["concurrency"]
    # Little's law holds in the window.
    in_system = window["request_rate"] * window["mean_e2e_latency_ms"] / 1000
    assert window["concurrency"] == pytest.approx(in_system, rel=0.03)
    assert window["saturated"] is False


@pytest.mark.parametrize("more", [(), ("replicas=3", "router=least-loaded"), CLIENTS])
def test_window_leaves_decisions_alone_and_fast_forward_the_same(more):
    """It is chosen after the run; steps and gaps between tokens are cut at the same times."""
    options = ("warmup={requests: 300}", "cooldown={duration_s: 20}", *more)
    plain, fast = simulated(*more), simulated(*options)
    slow = simulated(*options, fast_forward=False)
    assert np.array_equal(plain.requests.finish_ns, fast.requests.finish_ns)
    gaps = fast.measured().token_gaps
    assert 0 < gaps.count.sum() < plain.token_gaps.count.sum()
    summaries = [add_quantiles(summarise(log), log) for log in (fast, slow)]
    assert summaries[0] == summaries[1]
