"""Hits and waiting against the size of host memory and the speed of its link."""

import pytest

RATIOS = [1, 2, 8]
SMALLER = ("workload.sessions=40", "scheduler.max_total_tokens=40000")


@pytest.fixture(scope="module")
def results(study):
    sweep = {
        "scheduler.host_cache.write_policy": ["write_through", "write_back"],
        "scheduler.host_cache.ratio": RATIOS,
        "scheduler.host_cache.load_bandwidth_gb_s": [2, 50],
        "seeds": [1],
    }
    return study("host-memory", sweep, *SMALLER)


def test_host_memory_larger_finds_more_and_pays_over_a_fast_link(results):
    """Both policies; what is loaded need not be computed."""
    for policy in ("write_through", "write_back"):
        setting = {"write_policy": policy, "load_bandwidth_gb_s": 50}
        hits = results.means("cache_hit_rate_pct", "ratio", RATIOS, **setting)
        assert hits == sorted(hits)
        assert hits[2] > hits[0] + 20
        waits = results.means("mean_ttft_ms", "ratio", RATIOS, **setting)
        assert waits == sorted(waits, reverse=True)
        assert waits[2] < waits[0] / 2
    for run in results.runs:
        found = run.summary["total_host_cached_tokens"]
        assert run.summary["total_cached_tokens"] > found > 0
        assert run.summary["total_loaded_tokens"] >= found


def test_host_memory_over_a_slow_link_costs_the_more_the_more_is_found(results):
    """65 us to load a token, 25 to compute it."""
    setting = {"write_policy": "write_through", "load_bandwidth_gb_s": 2}
    waits = results.means("mean_ttft_ms", "ratio", RATIOS, **setting)
    assert waits == sorted(waits)
    assert waits[2] > 1.5 * waits[0]
    hits = results.means("cache_hit_rate_pct", "ratio", RATIOS, **setting)
    assert hits[2] > hits[0] + 10


def test_host_memory_is_worth_more_than_none_unless_loading_is_slower(study, results):
    """Without it fewer tokens are found, and nothing is said of it."""
    off = ("scheduler.host_cache=null",)
    [run] = study("host-memory", {"seeds": [1]}, *SMALLER, *off).runs
    assert "host_hit_rate_pct" not in run.summary
    largest = {"write_policy": "write_through", "ratio": 8}
    fast, slow = (
        {
            name: results.mean(name, **largest, load_bandwidth_gb_s=speed)
            for name in ("cache_hit_rate_pct", "median_ttft_ms")
        }
        for speed in (50, 2)
    )
    for found in (fast, slow):
        assert found["cache_hit_rate_pct"] > run.summary["cache_hit_rate_pct"] + 10
    assert fast["median_ttft_ms"] < run.summary["median_ttft_ms"] < slow["median_ttft_ms"]


def test_host_memory_of_a_pool_is_worth_it_only_written_back(results):
    """Written through it holds what the device holds."""
    through, back = (
        results.mean("host_hit_rate_pct", write_policy=policy, ratio=1, load_bandwidth_gb_s=50)
        for policy in ("write_through", "write_back")
    )
    assert through < 2
    assert back > through + 5
