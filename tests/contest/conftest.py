"""Small contests: two kinds of traffic that a linear latency serves in milliseconds."""

import pytest

from sim.contest.plan import plan_contest
from sim.scenario.load import load_scenario_text
from tests.support.serve import LINEAR_LATENCY

SCENARIO = (
    f"name: small\n{LINEAR_LATENCY}"
    """\
workload:
  kind: synthetic
  num_requests: 40
  arrivals: {kind: poisson, rate_rps: 20}
  prompt_tokens: {kind: uniform, min: 20, max: 300}
  output_tokens: {kind: uniform, min: 1, max: 30}
  prefixes: {groups: 3, tokens: {kind: constant, value: 160}, share_probability: 0.5}
scheduler: {page_size: 16, max_total_tokens: 4096, context_length: 2048, chunked_prefill_size: 256}
slo: {ttft_ms: 500, tpot_ms: 50}
contest:
  reference: fcfs
  contestants:
    fcfs: {scheduler.schedule_policy: fcfs}
    lpm: {scheduler.schedule_policy: lpm}
    vllm: {scheduler: {family: vllm, block_size: 16, num_gpu_blocks_override: 256}}
  traffic: [own, {name: mine, pool_tokens: 2048, workload: WORKLOAD}]
  loads: [0.8, 1.2]
  seeds: 3
"""
)
WORKLOAD = (
    "{kind: mix, parts: ["
    "{tenant: a, workload: {kind: synthetic, num_requests: 20,"
    " arrivals: {kind: poisson, rate_rps: 6}, prompt_tokens: {kind: constant, value: 300},"
    " output_tokens: {kind: constant, value: 20}}}, "
    "{tenant: b, workload: {kind: synthetic, num_requests: 20,"
    " arrivals: {kind: poisson, rate_rps: 6}, prompt_tokens: {kind: constant, value: 100},"
    " output_tokens: {kind: constant, value: 20}}}]}"
)


@pytest.fixture(scope="session")
def contest_text():
    """A scenario with a contest of three contestants."""
    return SCENARIO.replace("WORKLOAD", WORKLOAD)


@pytest.fixture
def planned(contest_text):
    """The contest, with `--set` options."""

    def plan(*overrides):
        return plan_contest(load_scenario_text(contest_text, overrides, name="small.yaml"))

    return plan
