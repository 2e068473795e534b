"""What routers achieve: hits if prefixes are shared, and short queues if lengths vary."""

import pytest

from sim.commands.running.points import run_point
from sim.des.routers.router import SessionSticky
from sim.scenario.load import load_scenario_text
from sim.sglang.config import SchedulerConfig
from sim.workers.executor import PointWork
from sim.workload.kinds.build import build_workload
from sim.workload.traces.read import read_trace
from tests.support.serve import linear_latency, serve

SERVER = """
latency:
  kind: linear
  step_s: 0.005
  per_prefill_token_s: 4e-5
  per_decode_request_s: 5e-5
  per_context_token_s: 2e-8
replicas: 4
"""
# 40 prefixes, of which a replica's pool has room for half.
SHARED_PREFIXES = f"""
name: shared-prefixes
{SERVER}
scheduler: {{page_size: 16, max_total_tokens: 30000, schedule_policy: lpm}}
workload:
  kind: synthetic
  num_requests: 600
  arrivals: {{kind: poisson, rate_rps: 30}}
  prompt_tokens: {{kind: constant, value: 200}}
  output_tokens: {{kind: geometric, mean: 50}}
  prefixes: {{groups: 40, tokens: {{kind: constant, value: 1500}}, share_probability: 1.0}}
"""
HEAVY_TAIL = f"""
name: heavy-tail
{SERVER}
scheduler: {{page_size: 16, max_total_tokens: 60000, max_running_requests: 8}}
workload:
  kind: synthetic
  num_requests: 500
  arrivals: {{kind: poisson, rate_rps: 20}}
  prompt_tokens: {{kind: lognormal, mean: 1500, cv: 2, max: 20000}}
  output_tokens: {{kind: lognormal, mean: 200, cv: 2, max: 4000}}
"""
SESSIONS = f"""
name: sessions
{SERVER}
scheduler: {{page_size: 16, max_total_tokens: 30000}}
workload:
  kind: sessions
  sessions: 60
  arrivals: {{kind: poisson, rate_rps: 3}}
  turns: {{kind: constant, value: 5}}
  user_tokens: {{kind: geometric, mean: 300}}
  output_tokens: {{kind: geometric, mean: 100}}
  think_s: {{kind: exponential, mean: 3}}
"""


def summary(text, router, seed=1):
    overrides = [f"router={router}", f"seed={seed}"]
    return run_point(PointWork(load_scenario_text(text, overrides)), read_trace)


@pytest.mark.parametrize("seed", [1, 2])
def test_prefix_aware_finds_more_of_shared_prefixes_than_round_robin(seed):
    """Each prefix has a home, so that a pool holds a quarter of them instead of all."""
    hits, in_turn = (
        summary(SHARED_PREFIXES, router, seed)["cache_hit_rate_pct"]
        for router in ("prefix-aware", "round-robin")
    )
    assert hits > in_turn + 15


@pytest.mark.parametrize("seed", [1, 2])
def test_least_loaded_keeps_the_longest_waits_below_round_robins(seed):
    """Nobody queues behind a few very long requests while another replica has room."""
    by_load, in_turn = (
        summary(HEAVY_TAIL, router, seed)["p99_ttft_ms"]
        for router in ("least-loaded", "round-robin")
    )
    assert by_load < 0.75 * in_turn


def test_session_sticky_finds_the_conversation_so_far():
    """Every turn but the first; taking turns, one in four lands where the last one was."""
    sticky, in_turn = (
        summary(SESSIONS, router)["cache_hit_rate_pct"]
        for router in ("session-sticky", "round-robin")
    )
    assert sticky > in_turn + 20


def test_session_sticky_serves_all_turns_of_a_session_on_one_replica():
    """Sixty sessions, all replicas in use."""
    loaded = load_scenario_text(SESSIONS)
    workload = build_workload(loaded.scenario.workload, seed=1, base_dir=loaded.base_dir)
    served = serve(
        workload,
        SchedulerConfig(max_total_tokens=30_000),
        [linear_latency() for _ in range(4)],
        router=SessionSticky(by_tenant=False, max_idle_ns=None, spill=None),
        check=False,
    )
    homes = {}
    for rid, replica in zip(
        served.log.requests.rid, served.log.requests.replica.tolist(), strict=True
    ):
        homes.setdefault(rid.split("-")[0], set()).add(replica)
    assert len(homes) == 60
    assert {len(replicas) for replicas in homes.values()} == {1}
    assert set.union(*homes.values()) == {0, 1, 2, 3}
