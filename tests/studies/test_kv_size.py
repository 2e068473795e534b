"""Hit rate, throughput and queueing against the size of the pool."""

POOLS = [20_000, 60_000, 120_000]
SMALLER = (
    "workload.sessions=80",
    "workload.user_tokens.mean=500",
    "workload.user_tokens.max=2000",
)


def test_kv_size_larger_pools_find_more_and_queue_less(study):
    """Contexts that were evicted are computed again: the server works more and answers later."""
    results = study("kv-size", {"scheduler.max_total_tokens": POOLS, "seeds": [1]}, *SMALLER)

    def at(metric):
        return results.means(metric, "max_total_tokens", POOLS)

    assert at("cache_hit_rate_pct") == sorted(at("cache_hit_rate_pct"))
    assert at("cache_hit_rate_pct")[2] > at("cache_hit_rate_pct")[0] + 20
    assert at("mean_queue_time_ms") == sorted(at("mean_queue_time_ms"), reverse=True)
    assert at("output_throughput") == sorted(at("output_throughput"))
    assert at("mean_kv_used_pct") == sorted(at("mean_kv_used_pct"), reverse=True)
