"""Errors of a simulation against a measured run, worked out by hand."""

import numpy as np
import pytest

from calibrate.measured.compare import compare, latency_errors
from calibrate.measured.pairs import Selection, join
from sim.core.errors import InputError


def test_latency_errors_are_those_of_means_and_those_of_requests():
    """Two requests that err in opposite ways: the mean is right, the requests are not."""
    errors = latency_errors(np.array([10.0, 20.0]), np.array([12.0, 18.0]))
    assert errors.num_requests == 2
    assert errors.values["mean"].measured == errors.values["mean"].simulated == 15
    assert errors.values["mean"].error_pct == 0
    assert errors.request_error_pct == pytest.approx((20 + 10) / 2)
    assert errors.values["p50"].measured == 15
    assert errors.values["p90"].measured == pytest.approx(19)
    assert errors.values["p90"].simulated == pytest.approx(17.4)
    assert errors.values["p90"].error_pct == pytest.approx(100 * (17.4 / 19 - 1))
    assert list(errors.values) == ["mean", "p50", "p90", "p95", "p99"]


def test_latency_errors_leave_out_what_is_unknown_and_count_zeros():
    """A measured 0 is in the means; it is left out of relative errors, and counted."""
    measured = np.array([np.nan, 0.0, 10.0, 10.0])
    errors = latency_errors(measured, np.array([1.0, 1.0, 11.0, np.nan]))
    assert (errors.num_requests, errors.num_left_out) == (2, 1)
    assert errors.values["mean"].measured == 5
    assert errors.request_error_pct == pytest.approx(10)


def test_latency_errors_leave_out_tokens_that_came_together():
    """Two tokens of one packet, 0.1 ms apart, in a run with a TPOT of 10 ms."""
    errors = latency_errors(np.array([0.1, 10.0, 10.0]), np.array([11.0, 11.0, 9.0]), 0.05)
    assert errors.num_left_out == 1
    assert errors.request_error_pct == pytest.approx(10)
    assert errors.values["mean"].measured == pytest.approx(6.7)


def test_latency_errors_of_nothing_are_undefined():
    """Without requests all values are None."""
    errors = latency_errors(np.array([np.nan]), np.array([1.0]))
    assert errors.request_error_pct is None
    assert errors.values["p99"].measured is errors.values["p99"].error_pct is None


def test_compare_takes_makespan_and_throughput_of_the_compared(stamps, simulated):
    """From their first arrival to their last finish; a shift of the clock changes nothing."""
    measured = stamps(("a", 1_000, 1_100, 2_000, 100), ("b", 1_500, 1_600, 3_000, 100))
    log = simulated(("a", 0, 90, 900, 100), ("b", 500, 590, 1_800, 60))
    comparison = compare(join(measured, log, Selection()))
    assert comparison.makespan_s.measured == 2
    assert comparison.makespan_s.simulated == pytest.approx(1.8)
    assert comparison.makespan_s.error_pct == pytest.approx(-10)
    assert comparison.output_throughput.measured == 100
    assert comparison.output_throughput.simulated == pytest.approx(160 / 1.8)
    assert comparison.arrivals.shift_ns == 1_000_000_000
    assert comparison.arrivals.spread_ms == 0
    assert comparison.latencies["ttft"].values["mean"].error_pct == pytest.approx(-10)


def test_compare_says_how_far_arrivals_are_off(stamps, simulated):
    """Beyond a common shift, the largest distance."""
    rows = [(f"r{i}", 100 * i, 100 * i + 9, 100 * i + 20, 4) for i in range(5)]
    late = [
        (rid, a + 40 + (7 if rid == "r3" else 0), f + 60, e + 60, n) for rid, a, f, e, n in rows
    ]
    arrivals = compare(join(stamps(*late), simulated(*rows), Selection())).arrivals
    assert arrivals.shift_ns == 40_000_000
    assert arrivals.spread_ms == pytest.approx(7)


def test_compare_of_no_pair_is_refused(stamps, simulated):
    """The error line says how many requests are missing or failed in either run."""
    pairs = join(stamps(("a", 0, 1, 2, 3)), simulated(("0", 0, 1, 2, 3)), Selection())
    known = r"none of the 1 requests finished in both runs \(1 are not in the simulation, 0 did not"
    with pytest.raises(InputError, match=known):
        compare(pairs)
