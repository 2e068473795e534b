"""Traffic where hit-benefit eviction keeps more or less than LRU (docs/explanation/adr/0007)."""

import pytest

from sim.des.deployment import Deployment
from sim.des.run import simulate
from sim.metrics.summary import summarise
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.serve import LINEAR_LATENCY

SERVER = (
    f"name: eviction\n{LINEAR_LATENCY}"
    """\
scheduler: {page_size: 16, max_total_tokens: 16384, context_length: 8192}
workload:
"""
)
FLOOD = """\
  kind: mix
  parts:
    - tenant: asked for now and then
      workload:
        kind: synthetic
        num_requests: 300
        arrivals: {kind: poisson, rate_rps: 1.5}
        prompt_tokens: {kind: constant, value: 64}
        output_tokens: {kind: constant, value: 8}
        prefixes:
          {groups: 12, tokens: {kind: constant, value: 640}, share_probability: 1.0, zipf: 0}
    - tenant: flood
      workload:
        kind: synthetic
        num_requests: 600
        arrivals: {kind: poisson, rate_rps: 3}
        prompt_tokens: {kind: uniform, min: 500, max: 1500}
        output_tokens: {kind: constant, value: 8}
"""
ZIPF = """\
  kind: synthetic
  num_requests: 1500
  arrivals: {kind: poisson, rate_rps: 5}
  prompt_tokens: {kind: constant, value: 64}
  output_tokens: {kind: constant, value: 8}
  prefixes:
    {groups: 60, tokens: {kind: uniform, min: 100, max: 1500}, share_probability: 0.9, zipf: 0.9}
"""
SESSIONS = """\
  kind: sessions
  sessions: 120
  arrivals: {kind: poisson, rate_rps: 0.7}
  turns: {kind: uniform, min: 2, max: 9}
  user_tokens: {kind: uniform, min: 30, max: 200}
  output_tokens: {kind: uniform, min: 10, max: 60}
  think_s: {kind: exponential, mean: 5}
"""


def hit_rate_pct(workload, eviction):
    options = [f"scheduler.radix_eviction_policy={eviction}"]
    built = build(load_scenario_text(SERVER + workload, options))
    log = simulate(built.workload, Deployment.of_one_kind(built.scheduler, built.latencies))
    return summarise(log)["cache_hit_rate_pct"]


@pytest.mark.parametrize(
    ("workload", "lru", "lfu", "hit_benefit"),
    [
        pytest.param(FLOOD, 11.3, 22.5, 14.9, id="a flood of single prompts"),
        pytest.param(ZIPF, 48.9, 58.9, 56.6, id="lasting popularity"),
        pytest.param(SESSIONS, 71.4, 32.3, 56.8, id="conversations that end"),
    ],
)
def test_eviction_policies_hit_rates_are_those_of_the_record(workload, lru, lfu, hit_benefit):
    """Counting uses helps where popularity lasts and harms where it ends; decay lies between."""
    found = [hit_rate_pct(workload, name) for name in ("lru", "lfu", "hit-benefit")]
    assert found == pytest.approx([lru, lfu, hit_benefit], abs=0.05)
