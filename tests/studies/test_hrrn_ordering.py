"""HRRN, LPM, DFS-weight and FCFS at concurrency 100: the published order of mean and p99 TTFT."""

from itertools import pairwise


def _ordered(results, metric, policies):
    values = results.means(metric, "schedule_policy", policies)
    return all(low < high for low, high in pairwise(values))


def test_hrrn_ordering_of_mean_and_p99_is_the_published_one(study):
    """HRRN gains hits over FCFS and starves nobody; LPM gains more of them and starves."""
    policies = ["hrrn", "lpm", "dfs-weight", "fcfs"]
    results = study("hrrn-ordering", {"scheduler.schedule_policy": policies, "seeds": [11]})
    assert _ordered(results, "mean_ttft_ms", ["hrrn", "lpm", "dfs-weight", "fcfs"])
    assert _ordered(results, "p99_ttft_ms", ["hrrn", "fcfs", "dfs-weight", "lpm"])
    assert _ordered(results, "cache_hit_rate_pct", ["fcfs", "hrrn", "dfs-weight", "lpm"])
    [longest_ms] = results.means("max_wait_ms", "schedule_policy", ["lpm"])
    [fcfs_ms] = results.means("max_wait_ms", "schedule_policy", ["fcfs"])
    assert longest_ms > 1.3 * fcfs_ms
