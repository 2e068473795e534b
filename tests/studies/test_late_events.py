"""Late cache events before recorded conversations: nothing is lost until turns return sooner."""

import pytest

pytestmark = pytest.mark.long

KV_AWARE = {"kind": "kv-aware", "prefill_load_scale": 16}
SETTINGS = [
    KV_AWARE,
    {**KV_AWARE, "event_delay_s": 1},
    {**KV_AWARE, "event_delay_s": 60},
    "kv-aware",
]


def test_late_events_cost_nothing_until_they_take_as_long_as_a_pause(study):
    """A second late finds what is found at once; a minute late, a third of it is lost.

    With the default weights the cache counts for less, and first tokens come later.
    """
    smaller = ("workload.limit=600",)
    at_once, second, minute, default = study("late-events", {"router": SETTINGS}, *smaller).runs
    hits = [run.summary["cache_hit_rate_pct"] for run in (at_once, second, minute)]
    assert abs(hits[0] - hits[1]) < 1.5
    assert hits[2] < 0.75 * hits[0]
    assert minute.summary["mean_ttft_ms"] > 1.05 * at_once.summary["mean_ttft_ms"]
    assert default.summary["mean_ttft_ms"] > 1.2 * at_once.summary["mean_ttft_ms"]
