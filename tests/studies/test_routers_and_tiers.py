"""Routers before servers with host memory."""

import pytest

pytestmark = pytest.mark.long

KV_AWARE = {"kind": "kv-aware", "prefill_load_scale": 16}
ROUTERS = [
    {**KV_AWARE, "host_credit": 0},
    {**KV_AWARE, "host_credit": 1},
    {**KV_AWARE, "host_credit": 1, "event_delay_s": 10},
    {**KV_AWARE, "kv_events": False},
    {**KV_AWARE, "kv_events": False, "max_predicted_tokens": 750080},
]


def test_routers_that_know_host_memory_find_more(study):
    """Also by a guess of what is in it; and what the router believes, the servers find."""
    smaller = ("workload.sessions=100",)
    runs = study("routers-and-tiers", {"router": ROUTERS, "seeds": [1]}, *smaller).runs
    device_only, tiers, late, sent, sent_with_host = (run.summary for run in runs)
    hits = "cache_hit_rate_pct"
    assert tiers[hits] > device_only[hits] + 10
    assert tiers["mean_ttft_ms"] < 0.8 * device_only["mean_ttft_ms"]
    assert sent_with_host[hits] > sent[hits] + 10
    assert tiers["false_hit_rate_pct"] < 1 < late["false_hit_rate_pct"]
    assert device_only["unforeseen_hit_rate_pct"] > 5 > tiers["unforeseen_hit_rate_pct"]
    for run in runs:
        found = run.summary
        expected = found["predicted_hit_rate_pct"] - found["false_hit_rate_pct"]
        assert expected + found["unforeseen_hit_rate_pct"] == pytest.approx(found[hits])
