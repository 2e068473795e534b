"""Late cache events before agents, whose turns follow one another within seconds."""

import pytest

pytestmark = pytest.mark.long

KV_AWARE = {"kind": "kv-aware", "prefill_load_scale": 16}
ROUTERS = [KV_AWARE, {**KV_AWARE, "event_delay_s": 10}, "kv-aware"]


def test_late_events_agents_lose_hits_and_time(study):
    """Ten seconds are longer than most pauses: the router does not know the last turns yet."""
    smaller = ("workload.sessions=25",)
    at_once, late, default = study(
        "late-events-agents", {"router": ROUTERS, "seeds": [1]}, *smaller
    ).runs
    assert at_once.summary["cache_hit_rate_pct"] > late.summary["cache_hit_rate_pct"] + 2
    assert late.summary["mean_ttft_ms"] > 1.1 * at_once.summary["mean_ttft_ms"]
    assert default.summary["mean_ttft_ms"] > 1.5 * at_once.summary["mean_ttft_ms"]
