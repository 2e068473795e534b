"""Published examples of cache-aware scheduling (docs/explanation/hit-rate.md has the rates)."""

import pytest

from sim.sglang.config import SchedulerConfig
from sim.testing.serve import serve
from sim.testing.workloads import ListWorkload, scripted

SHARED_TOKENS = 24 * 2_000


def serve_24_and_8(policy, **settings):
    """32 requests at once: 24 share 2,000 tokens, every fourth is unrelated; 59,269 tokens."""
    requests = []
    for i in range(32):
        if i % 4 == 3:
            requests.append(scripted(f"u{i}", (500 + i, 1_049 if i < 20 else 1_048), output=16))
        else:
            requests.append(scripted(f"s{i}", (1, 2_000), (100 + i, 120), output=16))
    usual = {"chunked_prefill_size": 8_192, "max_total_tokens": 200_000}
    config = SchedulerConfig(
        schedule_policy=policy, disable_overlap_schedule=True, **(usual | settings)
    )
    return serve(ListWorkload(requests), config)


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "lof", "dfs-weight"])
def test_hit_rate_24_and_8_in_arrival_order_is_67_5_percent(policy):
    """Four sharers start before the first is done, and miss: 20 x 2,000 of 59,269 tokens."""
    served = serve_24_and_8(policy)
    assert served.log.requests.cached_tokens.sum() == 40_000
    assert served.log.requests.prompt_tokens.sum() == 59_269
    assert served.cache_hit_rate_pct == pytest.approx(67.5, abs=0.05)


def test_hit_rate_24_and_8_under_lpm_is_77_6_percent():
    """One sharer and the unrelated ones go first, the 23 others find 2,000 tokens each."""
    served = serve_24_and_8("lpm")
    assert served.log.requests.cached_tokens.sum() == 46_000
    assert served.cache_hit_rate_pct == pytest.approx(77.6, abs=0.05)


def test_hit_rate_24_and_8_of_shareable_tokens_is_above_95_percent_under_lpm():
    """The published "above 95 %" is the share of the 48,000 tokens that could be shared."""
    served = serve_24_and_8("lpm")
    assert served.log.requests.cached_tokens.sum() / SHARED_TOKENS == pytest.approx(23 / 24)


def test_hit_rate_24_and_8_of_shareable_tokens_is_half_under_fcfs_in_batches_of_16():
    """The published "near 50 %" needs 16 admitted at once: 12 of the 24 sharers miss."""
    served = serve_24_and_8(
        "fcfs", chunked_prefill_size=-1, max_prefill_tokens=100_000, max_running_requests=16
    )
    assert served.log.requests.cached_tokens.sum() / SHARED_TOKENS == 0.5


def serve_two_clusters(policy):
    """A, B, A, B, A, B at once; A's share 2,000 tokens, B's 1,500; four slots."""
    requests = [
        scripted(
            f"{'AB'[i % 2]}{i // 2}", (1 + i % 2, (2_000, 1_500)[i % 2]), (9 + i, 50), output=20
        )
        for i in range(6)
    ]
    config = SchedulerConfig(
        schedule_policy=policy,
        max_running_requests=4,
        max_total_tokens=32_000,
        chunked_prefill_size=2_048,
        disable_overlap_schedule=True,
    )
    return serve(ListWorkload(requests), config)


def test_two_clusters_under_lpm_run_one_after_the_other():
    """LPM admits A's cluster whole, then B's."""
    steps = serve_two_clusters("lpm").steps
    order = dict.fromkeys(row[0] for step in steps for row in step["prefill"])
    assert list(order) == ["A0", "A1", "A2", "B0", "B1", "B2"]


def test_two_clusters_under_lpm_compute_each_prefix_once():
    """Two A's find 2,000 tokens, two B's 1,500: 7,000 of 10,800. FCFS starts B1 too early."""
    assert serve_two_clusters("lpm").log.requests.cached_tokens.tolist() == [
        0, 0, 2_000, 1_500, 2_000, 1_500,
    ]  # fmt: skip
    assert serve_two_clusters("fcfs").log.requests.cached_tokens.tolist() == [
        0, 0, 2_000, 0, 2_000, 1_500,
    ]  # fmt: skip
