"""Intervals of servers whose step times were fitted to their own measured requests."""

import math

import pytest

from sim.confidence.confidence import before_traffic, confidence_of
from sim.confidence.intervals import half_width, settings_of
from sim.core.errors import InputError
from sim.report.confidence_text import confidence_lines
from sim.scenario.load import load_scenario_text
from tests.confidence.test_confidence import LINEAR, OPEN, SUMMARY

BASIS = "fitted to 150 requests of measured runs: 1"
FITTED = """\
fitted:
  requests: 150
  runs: 1
  held_out: 15
  concurrency: [8, 32]
  prompt_tokens: [1024, 1024]
  output_tokens: [1024, 1024]
  ttft: 0.2
  tpot: 0.1
  settings: SETTINGS
"""


def loaded(text=FITTED, *options):
    raw = load_scenario_text(f"name: a\n{OPEN}{LINEAR}").raw
    text = text.replace("SETTINGS", settings_of(raw))
    return load_scenario_text(f"name: a\n{OPEN}{LINEAR}{text}", options)


def ends(found, name):
    """By what factors the interval's ends are off the mean."""
    return tuple(math.log(found[name][end] / SUMMARY[name]) for end in ("low", "high"))


def test_half_width_is_the_quantile_of_split_conformal_prediction():
    """With n errors that of a further one is below the k-th in k of n + 1 cases."""
    assert half_width([0.1 * number for number in range(1, 9)]) is None
    assert half_width([-0.9, *(0.1 * number for number in range(1, 9))]) == 0.9
    assert half_width([0.1 * number for number in range(1, 20)]) == pytest.approx(1.8)


def test_interval_of_a_fitted_server_is_that_of_the_requests_held_out():
    """Among the loads that were fitted; not of the throughput, which nothing was held out for."""
    found = confidence_of(loaded(), SUMMARY)
    assert found["basis"] == BASIS
    assert found["level_pct"] == 90
    assert ends(found, "mean_ttft_ms") == pytest.approx((-0.2, 0.2))
    assert ends(found, "mean_tpot_ms") == pytest.approx((-0.1, 0.1))
    assert "output_throughput" not in found
    assert confidence_lines(found) == [
        f"step times: {BASIS}",
        "90 % interval: mean TTFT 245.6 to 366.4 ms, mean TPOT 14.48 to 17.68 ms",
    ]


def test_interval_is_wider_away_from_the_loads_that_were_fitted():
    """And there is none beyond; whichever way, and whatever of the load is different."""
    near = confidence_of(loaded(), SUMMARY | {"concurrency": 48.0})
    assert ends(near, "mean_ttft_ms")[1] > 0.2
    longer = confidence_of(loaded(), SUMMARY | {"total_input_tokens": 98_304})
    assert ends(longer, "mean_ttft_ms") == pytest.approx(ends(near, "mean_ttft_ms"))
    for changes in ({"concurrency": 1000.0}, {"concurrency": 0.1}, {"total_output_tokens": 64}):
        found = confidence_of(loaded(), SUMMARY | changes)
        assert "off all that were fitted" in found["no_interval"]
        assert "mean_ttft_ms" not in found


def test_late_traffic_at_a_rate_has_no_interval_of_ttft():
    """It grows for as long as requests come."""
    late = confidence_of(loaded(), SUMMARY | {"saturated": True})
    assert "mean_ttft_ms" not in late
    assert "mean_tpot_ms" in late


def test_other_settings_than_the_fitted_ones_claim_nothing():
    """A step time, the scheduler; what the traffic is may change."""
    for option in ("latency.step_s=0.02", "scheduler.max_total_tokens=9000"):
        found = confidence_of(loaded(FITTED, option), SUMMARY)
        assert found["no_interval"] == "the server's settings are no longer those that were fitted"
    assert "mean_ttft_ms" in confidence_of(loaded(FITTED, "workload.num_requests=9"), SUMMARY)


def test_too_few_requests_held_out_say_so():
    """In place of an interval."""
    few = FITTED.replace("  ttft: 0.2\n  tpot: 0.1\n", "").replace("held_out: 15", "held_out: 5")
    found = confidence_of(loaded(few), SUMMARY)
    assert (
        found["no_interval"] == "1 run fitted, 5 groups of requests held out: an interval takes 9"
    )


def test_before_traffic_a_fitted_server_says_what_it_rests_on():
    assert before_traffic(loaded(), "") == {"basis": BASIS}


def test_fitted_section_changes_no_hash_but_its_own():
    """Runs without one keep the hash that they had before there were any."""
    plain = load_scenario_text(f"name: a\n{OPEN}{LINEAR}")
    assert plain.content_hash != loaded().content_hash
    none = load_scenario_text(f"name: a\n{OPEN}{LINEAR}fitted: null\n")
    assert plain.content_hash == none.content_hash


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[8, 32]", "[32, 8]", "must go from the least to the most"),
        ("requests: 150", "requests: 0", "must be at least 1"),
        ("ttft: 0.2", "ttft: -1", "must be greater than 0"),
        ("SETTINGS", "x", "settings: "),
    ],
)
def test_bad_fitted_section_is_one_line(old, new, reason):
    with pytest.raises(InputError, match=reason):
        loaded(FITTED.replace(old, new))
