"""FAIRNESS_T trades the hit rate for tail latency; the curve has a knee."""

from sim.metrics.points import find_knee

T_MS = [0, 100, 200, 500, None]
SMALLER = (
    "workload.parts.0.workload.num_requests=3000",
    "workload.parts.1.workload.num_requests=90",
)
POLICY, T_KEY = "scheduler.schedule_policy", "scheduler.fairness.t_ms"


def test_fairness_curve_bends_at_200_ms(study):
    """There LPM's hits are nearly all there, and cold requests wait as at first come first served.

    Beyond, the slowest requests wait longer for hardly any hit.
    """
    sweep = {POLICY: ["lpm"], T_KEY: T_MS, "seeds": [2]}
    results = study("fairness-curve", sweep, *SMALLER)
    hits = results.means("cache_hit_rate_pct", "t_ms", T_MS)
    p99_ms = results.means("p99_ttft_ms", "t_ms", T_MS)
    knee = find_knee(p99_ms, hits)
    assert knee is not None
    assert T_MS[knee.index] == 200
    assert hits[2] - hits[0] > 0.75 * (hits[-1] - hits[0]) > 2
    assert p99_ms[2] < 1.1 * p99_ms[0]
    assert p99_ms[-1] > 1.3 * p99_ms[2]
    cold_max_ms = results.means("tenants.cold.max_ttft_ms", "t_ms", T_MS)
    assert 200 < cold_max_ms[2] < 250
    assert cold_max_ms[-1] > 1.5 * cold_max_ms[2]
    aged = results.means("aged", "t_ms", T_MS)
    assert aged == sorted(aged, reverse=True)
    assert (aged[0], aged[-1]) == (3090, 0)


def test_fairness_curve_fcfs_finds_less_than_lpm_in_the_same_order(study):
    """With T = 0 LPM serves by arrival, yet matching the whole queue keeps what it waits for."""
    sweep = {"list": [{POLICY: "fcfs", T_KEY: None}, {POLICY: "lpm", T_KEY: 0}], "seeds": [2]}
    results = study("fairness-curve", sweep, *SMALLER)
    fcfs, lpm = results.means("cache_hit_rate_pct", "schedule_policy", ["fcfs", "lpm"])
    assert lpm > fcfs + 2
