"""Differences are paired by seed, and a family of comparisons shows few that are not there."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from sim.contest.compare import LEVEL, Difference, corrected, difference, paired
from sim.contest.measures import BY_NAME
from sim.metrics.registry import Better

TTFT, HITS = BY_NAME["p99_ttft_ms"], BY_NAME["cache_hit_rate_pct"]


def test_difference_of_a_percentage_is_in_points():
    """The mean of the differences, Student's interval and the chance, as scipy has them."""
    found = difference(HITS, paired(HITS, [52, 61, 43, 70], [50, 60, 40, 66]))
    expected = ttest_1samp([2, 1, 3, 4], 0)
    low, high = expected.confidence_interval(0.95)
    assert (found.mean, found.low, found.high) == pytest.approx((2.5, low, high))
    assert found.chance == pytest.approx(expected.pvalue)


def test_difference_of_a_latency_is_a_ratio_in_percent():
    """Twice as long with one seed and half as long with another is no difference in the mean."""
    assert difference(TTFT, paired(TTFT, [200, 50], [100, 100])).mean == pytest.approx(0)
    found = difference(TTFT, paired(TTFT, [110, 220, 331], [100, 200, 300]))
    assert found.mean == pytest.approx(100 * ((1.1 * 1.1 * 331 / 300) ** (1 / 3) - 1))
    assert found.low < found.mean < found.high


def test_what_the_seed_does_to_both_cancels_out():
    """The values vary tenfold, the ratios do not: the interval is that of the ratios."""
    found = difference(TTFT, paired(TTFT, [110, 1110, 327], [100, 1000, 300]))
    assert 7 < found.low < found.high < 13


@pytest.mark.parametrize("values", [[None, 1, 1], [0, 1, 1]])
def test_difference_is_undefined_if_a_seed_has_none(values):
    """No value, or the ratio to nothing: the rest would be the seeds in which all went well."""
    assert difference(TTFT, paired(TTFT, values, [1, 1, 1])) == Difference(None)


def test_equal_runs_are_the_same():
    found = difference(TTFT, paired(TTFT, [5, 6, 7], [5, 6, 7]))
    assert found.verdict(Better.LOWER) == "same"
    assert corrected({1: found})[1].verdict(Better.LOWER) == "same"


def test_two_seeds_show_nothing():
    found = corrected({1: difference(TTFT, paired(TTFT, [5, 6], [50, 60]))})[1]
    assert (found.low, found.chance, found.verdict(Better.LOWER)) == (None, None, "none shown")


def test_seeds_that_draw_nothing_show_nothing():
    """All runs of a recorded trace are one run, however often it is made."""
    found = difference(TTFT, paired(TTFT, [5, 5, 5], [9, 9, 9]), draws=False)
    assert found.mean == pytest.approx(100 * (5 / 9 - 1))
    assert corrected({1: found})[1].verdict(Better.LOWER) == "none shown"


def test_holm_multiplies_by_the_comparisons_that_are_left():
    """0.01 x 4, 0.02 x 3, 0.02 x 2 (not below the one before), 0.9 x 1."""
    chances = [0.02, 0.9, 0.01, 0.02]
    found = corrected({n: Difference(1.0, 0.5, 1.5, p) for n, p in enumerate(chances)})
    assert [one.corrected for one in found.values()] == pytest.approx([0.06, 0.9, 0.04, 0.06])
    assert [one.verdict(Better.HIGHER) for one in found.values()] == [
        "none shown", "none shown", "better", "none shown",
    ]  # fmt: skip


def test_verdict_depends_on_what_is_better():
    less = Difference(-3.0, -4.0, -2.0, 0.001, 0.001)
    assert (less.verdict(Better.LOWER), less.verdict(Better.HIGHER)) == ("better", "worse")


def test_families_without_differences_show_one_in_at_most_one_of_twenty():
    """2,000 families of 30 comparisons of noise, five seeds each."""
    rng = np.random.default_rng(1)
    num_wrong = 0
    for _ in range(2000):
        noise = rng.normal(size=(30, 5))
        family = {n: difference(HITS, row.tolist()) for n, row in enumerate(noise)}
        num_wrong += any(
            one.verdict(Better.HIGHER) != "none shown" for one in corrected(family).values()
        )
    assert num_wrong / 2000 <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 2000)
    assert num_wrong / 2000 >= LEVEL / 3
