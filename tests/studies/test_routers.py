"""Hits and waits under four routers, and the effect of one system prompt for all."""

import pytest

ROUTERS = ["round-robin", "least-loaded", "prefix-aware", "session-sticky"]


@pytest.fixture(scope="module")
def results(study):
    rates = {"workload.arrivals.rate_rps": [2, 6]}
    return study("routers", {**rates, "router": ROUTERS, "seeds": [2]})


@pytest.mark.parametrize("rate_rps", [2, 6])
def test_routers_that_know_what_was_sent_find_twice_as_much(results, rate_rps):
    """A conversation's next turn goes to where the last one was: less to compute, less to wait."""
    in_turn, by_load, by_prefix, by_session = results.means(
        "cache_hit_rate_pct", "router", ROUTERS, rate_rps=rate_rps
    )
    assert min(by_prefix, by_session) > 1.7 * max(in_turn, by_load)
    in_turn, by_load, by_prefix, by_session = results.means(
        "mean_ttft_ms", "router", ROUTERS, rate_rps=rate_rps
    )
    assert max(by_prefix, by_session) < 0.7 * min(in_turn, by_load)


def test_routers_by_load_beat_turns_only_where_there_is_a_queue(results):
    """At the low rate nobody waits for long, and the first of idle replicas is not the best."""
    for rate_rps, is_better in ((2, False), (6, True)):
        in_turn, by_load, *_ = results.means("mean_ttft_ms", "router", ROUTERS, rate_rps=rate_rps)
        assert (by_load < in_turn) == is_better


def test_routers_by_prefix_crowd_the_home_of_a_prefix_that_all_share(study):
    """New conversations all go there until it has 64 requests more; with 8 nobody notices."""
    results = study(
        "routers",
        {
            "router": [{"kind": "prefix-aware", "balance_abs_threshold": n} for n in (8, 64)],
            "seeds": [1],
        },
        "workload.system_prompts.count=1",
    )
    early, late = results.runs
    assert late.summary["mean_ttft_ms"] > 5 * early.summary["mean_ttft_ms"]
    assert late.summary["max_decode_rows"] > 1.5 * early.summary["max_decode_rows"]
