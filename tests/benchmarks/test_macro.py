"""Speed of whole simulations, as ratios within one run: `make bench`."""

import pytest

from bench.inputs import NUM_CHATS, chats
from bench.places import SCENARIOS, TRACE
from sim.commands.running.simulate import simulate_here
from sim.des.deployment import Deployment
from sim.des.run import RunOptions, simulate
from sim.scenario.build import build
from sim.scenario.load import load_scenario, load_scenario_text

pytestmark = pytest.mark.benchmark_suite
# Mooncake's whole trace does not ship; only `make bench` runs these, no part of `make test` does.
needs_trace = pytest.mark.skipif(not TRACE.exists(), reason="Mooncake's trace is not here")

SCENARIO = """
name: bench
latency: {kind: linear, step_s: 0.005, per_prefill_token_s: 4e-5, per_decode_request_s: 5e-5,
          per_context_token_s: 2e-8}
workload:
  kind: synthetic
  num_requests: 1500
  arrivals: {kind: poisson, rate_rps: 4}
  prompt_tokens: {kind: lognormal, mean: 2000, cv: 1.0, max: 30000}
  output_tokens: {kind: lognormal, mean: 340, cv: 0.7, max: 2000}
  prefixes: {groups: 40, tokens: {kind: uniform, min: 1000, max: 8000}, share_probability: 0.6}
scheduler: {page_size: 64, max_total_tokens: 400000, chunked_prefill_size: 8192}
"""


def run(overrides, options):
    built = build(load_scenario_text(SCENARIO, overrides))
    return simulate(
        built.workload, Deployment.of_one_kind(built.scheduler, built.latencies), options
    )


@pytest.mark.benchmark(group="1,500 requests")
@pytest.mark.parametrize("policy", ["fcfs", "lpm"])
@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
def test_synthetic(benchmark, policy, fast_forward):
    """The gain of passing decode steps at once is the ratio within this group."""
    log = benchmark.pedantic(
        run,
        ([f"scheduler.schedule_policy={policy}"], RunOptions(fast_forward=fast_forward)),
        rounds=3,
    )
    assert log.requests.status.count("finished") == 1_500


@pytest.mark.benchmark(group="1,500 requests a server")
@pytest.mark.parametrize("replicas", [1, 4])
def test_replicas(benchmark, replicas):
    """Four servers with four times the traffic should cost four times as much, not more."""
    overrides = [
        f"replicas={replicas}",
        f"workload.num_requests={1_500 * replicas}",
        f"workload.arrivals.rate_rps={4 * replicas}",
    ]
    log = benchmark.pedantic(run, (overrides, RunOptions()), rounds=3)
    assert log.requests.status.count("finished") == 1_500 * replicas


def run_file(name, overrides):
    built = build(load_scenario(SCENARIOS / name, overrides))
    return simulate(built.workload, Deployment.of_one_kind(built.scheduler, built.latencies))


@needs_trace
@pytest.mark.benchmark(group="Mooncake's conversation trace, 7,851 requests")
@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param((), id="1 replica"),
        pytest.param(("replicas=4",), id="4 replicas"),
        pytest.param(("replicas=4", "scheduler.page_size=1"), id="4 replicas, page size 1"),
        pytest.param(("workload.time_scale=0.25",), id="arrivals x 4, fcfs"),
        pytest.param(
            ("workload.time_scale=0.25", "scheduler.schedule_policy=lpm"), id="arrivals x 4, lpm"
        ),
    ],
)
def test_conversation(benchmark, overrides):
    """The work that `make bench-peers` races with, in this process: no start-up, no summary."""
    log = benchmark.pedantic(run_file, ("mooncake.yaml", overrides), rounds=2)
    assert log.requests.status.count("finished") == 7_851


def run_disaggregated(overrides):
    built = build(load_scenario(SCENARIOS / "disaggregated.yaml", overrides))
    return simulate_here(built, RunOptions())[0]


@needs_trace
@pytest.mark.benchmark(group="Mooncake's conversation trace 50 times as fast, 64 servers")
@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param((), id="32 prefill and 32 decode servers"),
        pytest.param(
            ("pools=null", "transfer=null", "replicas=64", "router=least-loaded"),
            id="64 servers that do both",
        ),
    ],
)
def test_disaggregated(benchmark, overrides):
    """What messages, transfers and two servers for each request cost."""
    log = benchmark.pedantic(run_disaggregated, (overrides,), rounds=2)
    assert log.requests.status.count("finished") == 7_851


@pytest.mark.benchmark(group="10,000 chats")
def test_chats(benchmark, tmp_path):
    """Chunked prefill beside decode rows, no prefix cache."""
    trace, _ = chats(tmp_path)
    arguments = ("chunked.yaml", [f"workload.path={trace}"])
    log = benchmark.pedantic(run_file, arguments, rounds=2)
    assert log.requests.status.count("finished") == NUM_CHATS
