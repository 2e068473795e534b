"""FAIRNESS_T on recorded conversations: order decides little where turns return after minutes."""

import pytest

pytestmark = pytest.mark.long

NAME = "fairness-curve-mooncake"
POLICY, T_KEY = "scheduler.schedule_policy", "scheduler.fairness.t_ms"
SETTINGS = [
    {POLICY: "fcfs", T_KEY: None},
    *({POLICY: "lpm", T_KEY: t_ms} for t_ms in (0, 500, None)),
]


def metrics(study, *smaller):
    results = study(NAME, {"list": SETTINGS}, *smaller)
    return (
        [run.summary[name] for run in results.runs]
        for name in ("cache_hit_rate_pct", "p99_ttft_ms")
    )


def test_fairness_curve_mooncake_order_hardly_matters(study):
    """Whatever T is, LPM finds what first come, first served finds, and waits are the same."""
    hits, p99_ms = metrics(study)
    assert max(hits) - min(hits) < 0.2
    assert max(p99_ms) < 1.05 * min(p99_ms)


def test_fairness_curve_mooncake_room_shortens_the_queue_near_saturation(study, shared_dir):
    """In the whole trace: aged requests are admitted against soft reservations."""
    trace = shared_dir / "traces" / "mooncake" / "conversation_trace.first-40min.jsonl.gz"
    if not trace.is_file():
        pytest.skip(f"no trace at {trace}")
    hits, p99_ms = metrics(study, f"workload.path={trace.resolve()}", "workload.limit=3000")
    assert max(hits) - min(hits) < 1
    assert p99_ms[2] < 0.9 * min(p99_ms[0], p99_ms[1], p99_ms[3])
