"""The traffic that is simulated for a window, and which part of the simulation is the window's."""

import math

import numpy as np
import pytest

from calibrate.watch.traffic import Lengths, span_traffic
from calibrate.watch.twin import WindowTwin
from sim.server_metrics.scrape import Histogram
from tests.calibrate.watch.conftest import Server
from tests.support.scrapes import scrape, windows

OWN = Lengths(np.array([100, 300]), np.array([10, 50]))
BOUNDS = (100.0, 1_000.0, math.inf)


def requests(*scrapes):
    workload = span_traffic(windows(*scrapes, seconds=10), OWN, np.random.default_rng(1))
    return list(workload.arrivals())


def test_requests_arrive_between_the_scrapes_that_say_so():
    begin = scrape(100, requests=0)
    found = requests(begin, scrape(105, requests=40), scrape(110, requests=50))
    at_s = np.array([each.spec.arrival_ns / 1e9 for each in found])
    assert (at_s < 5).sum() == 40
    assert ((at_s >= 5) & (at_s < 10)).sum() == 10
    assert 2 < at_s[:40].mean() < 3


def test_what_the_server_had_before_comes_first_and_a_part_of_it_is_done():
    begin = scrape(0, running=400, waiting=100)
    found = requests(begin, scrape(10, running=300, requests=200))
    assert len(found) == 500
    assert {each.spec.arrival_ns for each in found} == {0}
    ran, waited = (
        np.mean([each.script.num_tokens for each in part]) for part in (found[:400], found[400:])
    )
    # Both kinds of output, 10 and 50 tokens, are half done; those that waited are whole.
    assert ran == pytest.approx(15, abs=2)
    assert waited == pytest.approx(30, abs=4)


def test_lengths_have_the_measured_means():
    totals = {"prompt_tokens": 80_000, "generation_tokens": 9_000}
    found = requests(
        scrape(0, requests=0, prompt_tokens=0, generation_tokens=0),
        scrape(10, requests=200, **totals),
    )
    prompts = [len(each.spec.prompt) for each in found]
    # The scenario's, 100 and 300, with 400 in place of 200 in the mean.
    assert set(prompts) == {200, 600}
    assert {each.script.num_tokens for each in found} == {15, 75}


def test_lengths_come_from_histograms_where_there_are_some():
    now = Histogram(BOUNDS, (3_000, 4_000, 4_000), 3_000 * 60.0 + 1_000 * 500.0)
    found = requests(
        scrape(0, requests=0, prompt_lengths=Histogram(BOUNDS, (0, 0, 0), 0.0)),
        scrape(10, requests=4_000, prompt_lengths=now),
    )
    prompts = np.array([len(each.spec.prompt) for each in found])
    assert prompts.mean() == pytest.approx(170, rel=0.05)
    assert (prompts <= 100 * 1.1).mean() == pytest.approx(0.75, abs=0.03)


def test_hits_are_a_prefix_that_all_requests_share():
    totals = {"prompt_tokens": 4_000, "cached_tokens": 1_000}
    begin = scrape(0, requests=0, prompt_tokens=0, cached_tokens=0)
    for each in requests(begin, scrape(10, requests=20, **totals)):
        (seed, shared), _ = each.spec.prompt.segments
        assert seed == 1
        assert shared == len(each.spec.prompt) // 4


def test_only_the_last_window_is_predicted_and_the_time_before_it_is_simulated():
    """Ten requests a second come in the first window, and none in the second."""
    twin = WindowTwin(Server().built(), num_draws=2, seed=1)
    counted = {"prompt_tokens": 30_000.0, "generation_tokens": 4_000.0}
    e2e = {"e2e_s": Histogram((math.inf,), (100,), 100.0)}
    none = {"e2e_s": Histogram((math.inf,), (0,), 0.0)}
    first, second = windows(
        scrape(0, requests=0, prompt_tokens=0, generation_tokens=0, **none),
        scrape(10, requests=100, **counted, **e2e),
        scrape(20, requests=100, **counted, **e2e),
        seconds=10,
    )
    busy, idle = twin.predict([first], 0), twin.predict([first, second], 1)
    assert all(running > 2 for running in busy.values("running"))
    assert all(0 < running < 2 for running in idle.values("running"))
    assert len(busy.values("ttft_ms")) == 2
    assert not idle.values("ttft_ms")
    assert (busy.span_s, idle.span_s) == (10, 20)


def test_more_requests_than_can_be_simulated_are_not_predicted():
    twin = WindowTwin(Server().built(), num_draws=2, seed=1)
    for first, last in (({}, {"requests": 1e12}), ({"running": 1e12}, {"running": 1e12})):
        (window,) = windows(scrape(0, **{"requests": 0, **first}), scrape(10, **last), seconds=10)
        assert not twin.predict([window], 0).draws


def test_numbers_that_no_server_has_do_no_harm():
    lengths = Histogram(BOUNDS, (-5, 3, -2), -1e14)
    begin = scrape(0, requests=0, running=-7, prompt_tokens=0, cached_tokens=0,
                   prompt_lengths=Histogram(BOUNDS, (0, 0, 0), 0.0))  # fmt: skip
    end = scrape(10, requests=20, prompt_tokens=50, cached_tokens=-900, prompt_lengths=lengths)
    found = requests(begin, end)
    assert len(found) == 27
    assert all(len(each.spec.prompt) >= 1 for each in found)
