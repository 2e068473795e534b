"""Windows of scrapes: arrivals that no counter has, means, stalls, and servers that start anew."""

import math

from sim.server_metrics.window import joined
from tests.support.scrapes import scrape, windows


def test_requests_that_arrived_have_ended_or_run_or_wait():
    (window,) = windows(
        scrape(0, requests=5, running=2),
        scrape(1, requests=5, running=4, waiting=3),  # 5 more
        scrape(2, requests=9, running=2, waiting=1),  # 4 ended, 4 fewer are there
    )
    assert [each.num for each in window.arrived] == [5, 0]
    assert window.num_arrived == 5
    assert window.seconds == 2
    assert window.figures["running"] == 3
    assert window.figures["waiting"] == 2


def test_arrivals_that_counters_take_back_are_not_counted_twice():
    """Gauges may be a step older than counters."""
    scrapes = [scrape(0, running=2), scrape(1, running=1), scrape(2, requests=1, running=3)]
    (window,) = windows(*scrapes)
    # One seems to have vanished, then three to have come: two did.
    assert [each.num for each in window.arrived] == [0, 2]


def test_latencies_are_means_of_what_was_added_and_need_enough_of_it():
    begin = scrape(0, tokens=1_000, ttfts=10)
    (window,) = windows(begin, scrape(2, tokens=1_100, ttfts=14, kv_usage=0.25))
    assert math.isclose(window.figures["tpot_ms"], 20)
    assert window.figures["kv_pct"] == 25
    assert "ttft_ms" not in window.figures  # of four requests
    (window,) = windows(begin, scrape(2, tokens=1_049, ttfts=15))
    assert math.isclose(window.figures["ttft_ms"], 200)
    assert "tpot_ms" not in window.figures  # of 49 tokens


def test_lengths_and_hits_come_from_counters_where_there_is_no_histogram():
    counted = {"prompt_tokens": 1_000, "cached_tokens": 250, "generation_tokens": 120}
    begin = scrape(0, prompt_tokens=0, cached_tokens=0, generation_tokens=0)
    (window,) = windows(begin, scrape(2, requests=4, **counted))
    assert window.mean_tokens("prompt_lengths", "prompt_tokens") == 250
    assert window.mean_tokens("output_lengths", "generation_tokens") == 30
    assert window.hit_rate == 0.25
    (idle,) = windows(begin, scrape(2, prompt_tokens=0, cached_tokens=0, generation_tokens=0))
    assert idle.mean_tokens("prompt_lengths", "prompt_tokens") is None
    assert idle.hit_rate == 0


def test_time_in_which_requests_run_and_no_token_comes_is_a_stall():
    (window,) = windows(
        scrape(0, running=2, tokens=100),
        scrape(0.5, running=2, tokens=100),
        scrape(1.5, running=2, tokens=150),
        scrape(2.5, running=0, tokens=150),  # nothing runs at its end
    )
    assert window.stalled_s == 0.5


def test_windows_join_to_one():
    scrapes = [scrape(2 * place, requests=3 * place, tokens=60 * place) for place in range(4)]
    span = joined(windows(*scrapes))
    assert span.seconds == 6
    assert span.added["requests"] == 9
    assert span.histograms["itl_s"].num == 180
    assert len(span.arrived) == 3


def test_a_server_whose_counters_fall_has_started_anew():
    before, after = scrape(0, requests=5, tokens=100), scrape(1, requests=0, tokens=100)
    assert after.is_restarted(before)
    assert scrape(1, requests=5, tokens=3).is_restarted(before)
    assert not scrape(1, requests=5, tokens=100).is_restarted(before)
