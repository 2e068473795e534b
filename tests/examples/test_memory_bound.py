"""A server of family vllm that is short of KV: 899 blocks of 16 tokens for chats of about 1,500.

Requests are preempted again and again, and still each of them gets all its tokens.
"""

from pathlib import Path

import numpy as np
import pytest

from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from tests.support.serve import serve

SCENARIO = """\
name: memory-bound
seed: 11
latency: {kind: linear, step_s: 0.012, per_prefill_token_s: 4.0e-5, per_decode_request_s: 5.0e-5,
  per_context_token_s: 2.0e-8}
workload: WORKLOAD
scheduler: {family: vllm, num_gpu_blocks_override: 900, block_size: 16, max_model_len: 14000}
"""
GENERATED = """
  kind: synthetic
  num_requests: 100
  arrivals: {kind: poisson, rate_rps: 10}
  prompt_tokens: {kind: lognormal, mean: 850, cv: 1.0, max: 8000}
  output_tokens: {kind: lognormal, mean: 650, cv: 0.7, max: 4000}
  prefixes: {groups: 10, tokens: {kind: uniform, min: 50, max: 800}, share_probability: 0.3}
"""
MEASURED = "data/measured/vllm-0.19-rtxpro6000-llama-3.1-8b/workload.blk16.jsonl.gz"
POOL_TOKENS = 899 * 16
SETTINGS = {
    "async": (),
    "sync": ("scheduler.async_scheduling=false",),
    "priority":
        ("scheduler.scheduling_policy=priority", "scheduler.scheduler_reserve_full_isl=false"),
    "no cache":
        ("scheduler.enable_prefix_caching=false", "scheduler.long_prefill_token_threshold=512"),
}  # fmt: skip


@pytest.fixture
def chats():
    """100 ShareGPT chats that a real server was given."""
    path = Path(__file__).parents[2] / MEASURED
    return f" {{kind: trace, format: mooncake, block_size: 16, limit: 100, path: {path.resolve()}}}"


def served_from(workload, overrides, **how):
    built = build(load_scenario_text(SCENARIO.replace(" WORKLOAD", workload), overrides))
    return built, serve(built.workload, built.scheduler, built.latencies, **how)


def check_all_served(built, served):
    """Each request finished with its length; each token has a time; pages add up to the pool."""
    wanted = {r.spec.rid: r.script.num_tokens for r in built.workload.arrivals()}
    requests, gaps = served.log.requests, served.log.token_gaps
    assert dict(zip(requests.rid, requests.output_tokens.tolist(), strict=True)) == wanted
    assert set(requests.status) == {"finished"}
    assert len(wanted) + int(gaps.count.sum()) == sum(wanted.values())
    # The sum over requests of the time from the first token to the last.
    lasted_ns = requests.finish_ns - requests.first_token_ns
    assert int((gaps.gap_ns * gaps.count).sum()) == int(lasted_ns.sum())
    assert all(step["free"] + step["used"] == POOL_TOKENS for step in served.steps)
    preempted = [rid for step in served.steps for _, rids in step["preempted"] for rid in rids]
    names, counts = np.unique(preempted, return_counts=True)
    logged = dict(zip(names.tolist(), counts.tolist(), strict=True))
    counted = zip(requests.rid, requests.preemptions.tolist(), strict=True)
    assert {rid: count for rid, count in counted if count} == logged


def check_prompts(served):
    """Pieces of a prompt follow one another, until its request is preempted."""
    ends = {}
    for step in served.steps:
        for _, rids in step["preempted"]:
            for rid in rids:
                ends.pop(rid, None)
        for rid, prefix_len, extend_len in step["prefill"]:
            assert prefix_len == ends.get(rid, prefix_len)
            ends[rid] = prefix_len + extend_len


@pytest.mark.parametrize("overrides", SETTINGS.values(), ids=SETTINGS)
def test_memory_bound_generated_chats_are_all_served(overrides):
    """Every invariant after every step; more than fifty preemptions."""
    built, served = served_from(GENERATED, overrides, check=True)
    check_all_served(built, served)
    check_prompts(served)
    assert served.log.requests.preemptions.sum() > 50
    assert min(step["free"] for step in served.steps) < 16 * 16


def test_memory_bound_real_chats_are_all_served(chats):
    """The same of a published workload."""
    built, served = served_from(chats, (), check=True)
    check_all_served(built, served)
    check_prompts(served)
    assert served.log.requests.preemptions.sum() > 50


def test_memory_bound_steps_pass_at_once_all_the_same():
    """Fast-forwarded or not, the log is the same to the byte."""
    _, served = served_from(GENERATED, (), check=False)
    _, stepped = served_from(GENERATED, (), check=False, fast_forward=False)
    assert served.text == stepped.text
    assert len(served.log.steps.num_steps) < len(stepped.log.steps.num_steps)


def test_memory_bound_no_more_with_ten_times_the_memory():
    """Nobody is preempted, and everybody is served sooner."""
    override = ("scheduler.num_gpu_blocks_override=9000",)
    runs = [served_from(GENERATED, overrides, check=False)[1] for overrides in ((), override)]
    ends_ns = [served.log.requests.finish_ns for served in runs]
    assert runs[1].log.requests.preemptions.sum() == 0
    assert ends_ns[1].mean() < 0.9 * ends_ns[0].mean()
