"""The test that decides about drift: what it learns, what it misses, and how seldom it is wrong."""

import math

import numpy as np
import pytest

from calibrate.watch.judge import Judge, Judges, Rule, unknown_spreads
from calibrate.watch.twin import Prediction

RULE = Rule(least_spread=0.05, load_spread=0.2)
SPREAD = 0.1


def take(judge, ratio, *, load=10.0, unknown=0.0, predicted=100.0):
    return judge.take(predicted * ratio, [predicted, predicted], unknown, load)


def taught(rng, num=30):
    """A judge whose twin is usually a quarter too low."""
    judge = Judge(RULE, num_learned=6)
    for error in rng.normal(0, SPREAD, num):
        verdict = take(judge, 1.25 * math.exp(error))
        assert verdict.drifts == 0
    return judge


@pytest.fixture
def judge():
    return taught(np.random.default_rng(1))


def test_the_usual_error_is_learned_first_and_then_taken_off():
    judge = Judge(RULE, num_learned=6)
    for _ in range(6):
        verdict = take(judge, 1.25)
        assert (verdict.low, verdict.score, verdict.predicted) == (None, 0, pytest.approx(100))
    assert judge.usual_ratio == pytest.approx(1.25)
    verdict = take(judge, 1.25)
    assert verdict.predicted == pytest.approx(125)
    assert verdict.score == pytest.approx(0, abs=1e-9)
    assert verdict.low < 125 < verdict.high


def test_a_window_of_warming_up_teaches_nothing():
    judge = Judge(RULE, num_learned=6)
    for ratio in (8.0, 1.0, 1.02, 0.98, 1.01, 0.99):
        take(judge, ratio)
    assert judge.usual_ratio == pytest.approx(1, abs=0.02)
    assert take(judge, 1.5).score > 3


def test_one_window_alone_is_no_drift_two_are(judge):
    assert take(judge, 100.0).drifts == 0
    assert take(judge, 100.0).drifts == 1


def test_a_drift_has_a_direction_and_an_end(judge):
    for _ in range(2):
        verdict = take(judge, 0.01)
    assert verdict.drifts == -1
    drifts = [take(judge, 1.25).drifts for _ in range(4)]
    assert drifts == [-1, -1, 0, 0]


def test_small_errors_that_last_are_found_in_the_end_and_tiny_ones_never(judge):
    spread = 0.12  # what the judge has learned, about
    found = [take(judge, 1.25 * math.exp(2.5 * spread)).drifts for _ in range(20)]
    assert found[0] == 0
    assert found[-1] == 1
    calm = taught(np.random.default_rng(1))
    assert not any(take(calm, 1.25 * math.exp(0.5 * spread)).drifts for _ in range(500))


def test_normal_errors_raise_no_alarm_in_twenty_thousand_windows():
    """Twenty servers, a thousand windows of each: nearly five days of windows of 20 s."""
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        judge = taught(rng)
        alarms += any(
            take(judge, 1.25 * math.exp(error)).drifts for error in rng.normal(0, SPREAD, 1_000)
        )
    assert alarms == 0


def test_another_load_and_what_no_metric_says_make_a_judge_careful(judge):
    usual = take(judge, 1.5).score
    assert take(judge, 1.5, load=100.0).score < 0.5 * usual
    assert take(judge, 1.5, unknown=1.0).score < 0.2 * usual


def test_figures_that_the_twin_or_the_server_lacks_are_not_judged():
    draws = [{"ttft_ms": 50.0, "running": 2.0, "waiting": 0.0, "kv_pct": 4.0}] * 2
    verdicts = Judges(6).take({"tpot_ms": 9.0, "running": 2.0, "waiting": 0.0, "kv_pct": 5.0},
                              Prediction(draws, 60.0), 0.0)  # fmt: skip
    assert set(verdicts) == {"waiting", "kv_share_pct"}
    assert verdicts["kv_share_pct"].measured == 2.5


def test_kv_of_cached_prefixes_and_first_tokens_of_a_queue_are_uncertain():
    idle = Prediction([{"ttft_ms": 50.0, "waiting": 0.0, "kv_pct": 4.0}], 60.0)
    assert unknown_spreads(idle, 0.0) == {"kv_share_pct": 0}
    assert unknown_spreads(idle, 0.8)["kv_share_pct"] == pytest.approx(0.8, abs=0.01)
    busy = Prediction([{"ttft_ms": 6_000.0, "waiting": 9.0, "kv_pct": 99.0}], 60.0)
    # Steps that are 5 % off are 3 s late after a minute.
    assert unknown_spreads(busy, 0.0)["ttft_ms"] == pytest.approx(0.5)
