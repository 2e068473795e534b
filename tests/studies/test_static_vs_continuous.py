"""Static against continuous batching."""

from itertools import pairwise

RATES = [1, 16]
SWEEP = {
    "scheduler.batching": ["static", "continuous"],
    "workload.arrivals.rate_rps": RATES,
    "seeds": [1, 2],
}


def test_static_vs_continuous_static_batches_run_half_empty(study):
    """More than twice the throughput at overload, as places do not stay empty; TTFT at any load."""
    found = study("static-vs-continuous", SWEEP, "workload.num_requests=300")
    static = found.means("output_throughput", "rate_rps", RATES, batching="static")
    continuous = found.means("output_throughput", "rate_rps", RATES, batching="continuous")
    assert continuous[1] > 2 * static[1]
    for metric, factor in (("mean_ttft_ms", 20), ("p99_ttft_ms", 20)):
        waits = found.means(metric, "rate_rps", RATES, batching="static")
        short = found.means(metric, "rate_rps", RATES, batching="continuous")
        assert all(there > factor * here for there, here in zip(waits, short, strict=True))
        assert all(lower < higher for lower, higher in pairwise(waits))
    rows = {
        batching: found.mean("mean_decode_rows", batching=batching, rate_rps=16)
        for batching in ("static", "continuous")
    }
    assert rows["static"] < 12
    assert 20 < rows["continuous"] <= 32
