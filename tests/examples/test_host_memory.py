"""What host memory is worth: two requests by hand, then conversations larger than the pool."""

import json

import pytest

from sim.des.run import simulate
from sim.latency.loading import LoadingLatency, LoadTimes
from sim.metrics.summary import summarise
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.sglang.cache.host_settings import HostCacheSettings
from sim.sglang.config import SchedulerConfig
from sim.testing.serve import linear_latency, serve
from sim.testing.workloads import ListWorkload, scripted

MS = 1_000_000
# b does not fit beside what a left behind; c begins with all of a's prompt.
COMING_BACK = ListWorkload(
    [
        scripted("a", (1, 100), output=1),
        scripted("b", (2, 150), output=1, arrival_ns=20 * MS),
        scripted("c", (1, 100), (3, 20), output=1, arrival_ns=40 * MS),
    ]
)


def serve_coming_back(num_parts=1, overlap=False, **settings):
    """5 ms a step and 0.04 ms a new token; 0.02 ms for a token to come back."""
    model = linear_latency(per_decode_request_s=0, per_context_token_s=0)
    config = SchedulerConfig(max_total_tokens=200, disable_overlap_schedule=not overlap, **settings)
    loading = LoadingLatency(model, LoadTimes(20_000, num_parts))
    return serve(COMING_BACK, config, [loading])


def ttft_ns(served, rid):
    row = served.request(rid)
    return row["first_token_ns"] - row["arrival_ns"]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("uses", [1, None], ids=["write-through", "write-back"])
def test_loading_back_takes_its_time_from_the_step(uses, overlap):
    """100 tokens come back in 2 ms, 20 are computed in 5.8 ms: 7.8 ms to the first token."""
    served = serve_coming_back(overlap=overlap, host_cache=HostCacheSettings(1000, uses, 10))
    assert [ttft_ns(served, rid) for rid in "abc"] == [9 * MS, 11 * MS, 7_800_000]
    step = served.steps[-1]
    assert (step["prefill"], step["loaded"]) == ([["c", 100, 20]], [["c", 100]])
    assert step["t_end_ns"] - step["t_start_ns"] == 7_800_000
    row = served.request("c")
    assert (row["cached_tokens"], row["host_cached_tokens"]) == (100, 100)


def test_loading_back_by_layer_overlaps_with_the_step():
    """In four parts: the step can begin after 0.5 ms and is never held up again."""
    served = serve_coming_back(num_parts=4, host_cache=HostCacheSettings(1000, 1, 10))
    assert ttft_ns(served, "c") == 6_300_000


def test_without_host_memory_everything_is_computed_again():
    """5 + 120 x 0.04 ms; and the log says nothing of host memory."""
    served = serve_coming_back()
    assert ttft_ns(served, "c") == 9_800_000
    assert "host_used" not in served.text
    assert "host_cached" not in served.text
    assert "loaded" not in served.text


@pytest.mark.parametrize(
    "settings",
    [HostCacheSettings(1000, 1, 101), HostCacheSettings(99, 1, 10), HostCacheSettings(1000, 2, 10)],
    ids=["below the threshold", "no room for the copy", "used only once"],
)
def test_host_memory_that_cannot_help_costs_nothing(settings):
    """Computed again, in the same time as without it."""
    served = serve_coming_back(host_cache=settings)
    assert ttft_ns(served, "c") == 9_800_000
    assert served.request("c")["cached_tokens"] == 0


CONVERSATIONS = """\
name: conversations
latency:
  kind: linear
  step_s: 0.005
  per_prefill_token_s: 4e-5
  per_decode_request_s: 5e-5
  per_context_token_s: 2e-8
scheduler: {page_size: 16, max_total_tokens: 16384, context_length: 8192}
workload:
  kind: sessions
  sessions: 60
  arrivals: {kind: poisson, rate_rps: 0.5}
  turns: {kind: constant, value: 6}
  user_tokens: {kind: uniform, min: 100, max: 400}
  output_tokens: {kind: uniform, min: 20, max: 60}
  think_s: {kind: exponential, mean: 15}
  closed_loop: false
"""


def conversations(**host_cache):
    overrides = [f"scheduler.host_cache={json.dumps(host_cache)}"] if host_cache else []
    built = build(load_scenario_text(CONVERSATIONS, overrides))
    return summarise(simulate(built.workload, built.scheduler, built.latencies))


def test_conversations_larger_than_the_pool_gain_by_host_memory():
    """More hits and a lower TTFT the larger it is; computing takes 25,000 tokens a second."""
    off = conversations()
    small, large = (conversations(ratio=r, load_tokens_per_s=500_000) for r in (2, 10))
    assert off["cache_hit_rate_pct"] < small["cache_hit_rate_pct"] - 5
    assert small["cache_hit_rate_pct"] < large["cache_hit_rate_pct"] - 5
    assert large["mean_ttft_ms"] < small["mean_ttft_ms"] < off["mean_ttft_ms"]
    assert large["total_cached_tokens"] > large["total_host_cached_tokens"] > 0
    assert large["total_loaded_tokens"] >= large["total_host_cached_tokens"]
    assert "host_hit_rate_pct" not in off


def test_conversations_lose_by_host_memory_that_is_slower_than_computing():
    """As many hits, and every one of them takes longer than a miss."""
    off = conversations()
    slow = conversations(ratio=10, load_tokens_per_s=5_000)
    assert slow["cache_hit_rate_pct"] > off["cache_hit_rate_pct"] + 10
    assert slow["mean_ttft_ms"] > off["mean_ttft_ms"]


def test_write_back_makes_more_of_a_small_host_memory():
    """It holds no second copies of what is on the device."""
    through, back = (
        conversations(ratio=1, load_tokens_per_s=500_000, write_policy=policy)
        for policy in ("write_through", "write_back")
    )
    assert back["host_hit_rate_pct"] > 1.5 * through["host_hit_rate_pct"]
