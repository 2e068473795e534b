"""Errors and spreads against values worked out by hand."""

import pytest

from calibrate.errors import real_runs, stage_errors
from calibrate.validate import validate
from calibrate.validate_steps import step_errors
from tests.support.measured_runs import Disturbance
from tests.support.run_logs import request_columns, run_log

MS = 1_000_000


def log_of(*ttft_ms, cached=0):
    """Requests one after the other, each with these TTFTs and ten more tokens in 100 ms."""
    arrival_ns = [1_000 * MS * i for i in range(len(ttft_ms))]
    first_ns = [at + ms * MS for at, ms in zip(arrival_ns, ttft_ms, strict=True)]
    size = len(ttft_ms)
    requests = request_columns(
        rid=[f"r{i}" for i in range(size)],
        arrival_ns=arrival_ns,
        scheduled_ns=arrival_ns,
        first_token_ns=first_ns,
        finish_ns=[first + 100 * MS for first in first_ns],
        prompt_tokens=[100] * size,
        cached_tokens=[cached] * size,
        output_tokens=[11] * size,
    )
    return run_log(requests, gaps=[(10 * MS, 10 * size)])


def test_real_runs_mean_and_spread_are_those_of_the_repeats():
    """Mean TTFTs of 15 and 25 ms: the mean is 20, the spread 10 ms or 50 %."""
    real = real_runs([log_of(10, 20), log_of(20, 30)])
    assert real.mean["mean_ttft_ms"] == 20
    assert real.spread["mean_ttft_ms"] == 10
    assert real.spread_pct("mean_ttft_ms") == 50
    assert real.spread_pct("mean_tpot_ms") == 0


def test_real_runs_request_spread_compares_requests_one_by_one():
    """From 10 to 20 ms is 100 %, from 20 to 30 ms 50 %."""
    real = real_runs([log_of(10, 20), log_of(20, 30)])
    assert real.request_spread_pct == {"ttft": 75, "tpot": 0, "e2e_latency": pytest.approx(8.7121)}


def test_real_runs_single_run_has_no_spread():
    """Neither metrics nor requests have a spread or a margin."""
    real = real_runs([log_of(10, 20)])
    assert real.margin["mean_ttft_ms"] is real.margin_pct("mean_ttft_ms") is None
    assert real.spread["mean_ttft_ms"] is None
    assert real.spread_pct("mean_ttft_ms") is None
    assert real.request_spread_pct["ttft"] is None


@pytest.mark.parametrize(
    ("simulated_ms", "error_pct", "within"), [(32, 60, True), (8, -60, True), (33, 65, False)]
)
def test_stage_errors_are_signed_and_held_against_the_margin(simulated_ms, error_pct, within):
    """15, 20 and 25 ms: the mean is 20, its standard error 2.887, and t is 4.303: +- 12.42."""
    logs = [log_of(15, 15), log_of(20, 20), log_of(25, 25)]
    real = real_runs(logs)
    assert real.margin["mean_ttft_ms"] == pytest.approx(12.42, abs=0.01)
    assert real.margin_pct("mean_ttft_ms") == pytest.approx(62.1, abs=0.1)
    errors = stage_errors(real, logs, [log_of(simulated_ms, simulated_ms)] * 3)
    assert errors.error_pct["mean_ttft_ms"] == error_pct
    assert errors.ratio["mean_ttft_ms"] == 1 + error_pct / 100
    assert errors.within["mean_ttft_ms"] is within


def test_stage_errors_of_requests_are_absolute_means():
    """One request is 50 % too slow, one 50 % too fast: the mean is right, requests are 50 % off."""
    logs = [log_of(20, 20)]
    errors = stage_errors(real_runs(logs), logs, [log_of(30, 10)])
    assert errors.error_pct["mean_ttft_ms"] == 0
    assert errors.request_error_pct["ttft"] == 50
    assert errors.within["mean_ttft_ms"] is None


def test_stage_errors_without_hits_have_no_relative_hit_rate():
    """A real hit rate of 0 has no relative error."""
    logs = [log_of(20)]
    errors = stage_errors(real_runs(logs), logs, [log_of(20, cached=50)])
    assert errors.error_pct["cache_hit_rate_pct"] is None
    assert errors.ratio["cache_hit_rate_pct"] is None
    assert errors.mean["cache_hit_rate_pct"] == 50


def test_step_errors_of_a_profile_off_by_a_factor_are_that_factor(rebuilt, profile):
    """Device and host time, every mode that occurs, and none outside the range."""
    runs = [rebuilt(), rebuilt("mixed.jsonl", "scheduler.enable_mixed_chunk=true")]
    steps, left = step_errors(runs, profile(1.25))
    assert list(steps) == ["extend", "decode", "mixed"]
    for errors in steps.values():
        for kind in (errors.device, errors.host):
            assert kind.mape_pct == pytest.approx(25, abs=0.01)
            assert kind.p50_pct == pytest.approx(25, abs=0.01)
            assert kind.max_pct == pytest.approx(25, abs=0.01)
            assert kind.total_pct == pytest.approx(25, abs=0.01)
    assert sum(errors.device.points for errors in steps.values()) == left.num_steps
    assert left.num_outside == 0


def test_step_errors_count_steps_outside_the_profile_s_range(rebuilt, profile):
    """A profile that never saw a batch of more than two decode rows."""
    narrow = profile()
    narrow.modes["decode"].range["decode_rows"] = (
        narrow.modes["decode"].range["decode_rows"].model_copy(update={"high": 2.0})
    )
    run = rebuilt()
    _, left = step_errors([run], narrow)
    beyond = [s for s in run.recorded.steps if s["mode"] == "decode" and s["n_decode"] > 2]
    assert left.num_outside == len(beyond) > 0


def test_validation_of_a_biased_profile_shows_the_bias_in_its_stage_only(rebuilt, profile):
    """The simulator is exact; a profile 10 % too slow is 10 % too slow at every latency."""
    alone = ("workload.arrivals={kind: constant, rate_rps: 1}",)
    runs = [
        rebuilt(f"{seed}.jsonl", *alone, disturbance=Disturbance(noise=0.02, seed=seed))
        for seed in (1, 2)
    ]
    (case,) = validate(profile(1.1), runs).cases
    assert case.label == "study"
    assert set(case.errors["recorded"].error_pct.values()) == {0}
    assert set(case.errors["recorded"].request_error_pct.values()) == {0}
    biased = case.errors["profile"]
    for metric in ("mean_ttft_ms", "mean_tpot_ms", "median_itl_ms", "mean_e2e_latency_ms"):
        assert biased.error_pct[metric] == pytest.approx(10, abs=1)
        assert biased.within[metric] is False
    assert biased.error_pct["cache_hit_rate_pct"] == 0
    assert 0 < case.real.spread_pct("mean_ttft_ms") < 2
