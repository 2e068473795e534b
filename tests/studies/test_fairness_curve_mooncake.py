"""FAIRNESS_T on recorded conversations: order decides little where turns return after minutes."""

import pytest

NAME = "fairness-curve-mooncake"
POLICY, T_KEY = "scheduler.schedule_policy", "scheduler.fairness.t_ms"


def test_fairness_curve_mooncake_order_hardly_changes_hits(study, plan_of, shared_dir):
    """Whatever T is, LPM finds what first come, first served finds, to a point.

    Yet a finite T shortens the wait, by admitting aged requests against soft reservations.
    """
    path = plan_of(NAME).base.scenario.workload.path
    trace = shared_dir / path.partition("shared/")[2]
    if not trace.is_file():
        pytest.skip(f"no trace at {trace}")
    settings = [{POLICY: "fcfs", T_KEY: None}]
    settings += [{POLICY: "lpm", T_KEY: t_ms} for t_ms in (0, 500, None)]
    smaller = (f"workload.path={trace}", "workload.limit=3000")
    results = study(NAME, {"list": settings}, *smaller)
    hits = [run.summary["cache_hit_rate_pct"] for run in results.runs]
    assert max(hits) - min(hits) < 1
    p99_ms = [run.summary["p99_ttft_ms"] for run in results.runs]
    assert p99_ms[2] < 0.9 * min(p99_ms[0], p99_ms[1], p99_ms[3])
