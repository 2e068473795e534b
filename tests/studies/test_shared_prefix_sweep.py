"""Hit rate of FCFS and LPM as more requests share a prefix."""

import pytest

SHARES = [0, 0.5, 1]
SWEEP = {
    "scheduler.schedule_policy": ["fcfs", "lpm"],
    "workload.prefixes.share_probability": SHARES,
    "seeds": [1, 2],
}


def test_shared_prefix_sweep_lpm_finds_more_the_more_is_shared(study):
    """Nothing to find: no difference. Then LPM is ahead by points, at the price of longer waits."""
    results = study("shared-prefix-sweep", SWEEP, "workload.requests_per_client=3")

    def along(metric, policy):
        return results.means(metric, "share_probability", SHARES, schedule_policy=policy)

    fcfs, lpm = (along("cache_hit_rate_pct", policy) for policy in ("fcfs", "lpm"))
    assert fcfs[0] == lpm[0] == 0
    assert 5 < fcfs[1] < fcfs[2] < 87
    assert 5 < lpm[1] < lpm[2] < 87
    assert lpm[1] - fcfs[1] > 5
    assert lpm[2] - fcfs[2] > 5
    assert along("output_throughput", "lpm")[2] > 1.05 * along("output_throughput", "fcfs")[2]
    assert along("max_wait_ms", "lpm")[2] > 1.2 * along("max_wait_ms", "fcfs")[2]


def test_shared_prefix_sweep_prompts_are_as_long_at_any_share(study):
    """What changes along the axis is what is shared, not how much there is to do."""
    tokens = study(
        "shared-prefix-sweep", SWEEP | {"seeds": [1]}, "workload.requests_per_client=1"
    ).means("total_input_tokens", "share_probability", SHARES)
    assert tokens[0] == pytest.approx(tokens[1]) == pytest.approx(tokens[2])
