"""Agreement of orders, against values worked out by hand."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from calibrate.errors import RealRuns
from calibrate.ranking import RANKED, clear_pairs, discordant, kendall_tau, rank


@pytest.mark.parametrize(
    ("a", "b", "tau"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1),
        # Pairs in order: 5 of 6; one reversed: (5 - 1) / 6.
        ([1, 2, 3, 4], [1, 2, 4, 3], 0.6667),
        # 4 pairs agree, 1 is tied in each: 4 / sqrt(5 x 5).
        ([1, 2, 2, 3], [1, 2, 3, 3], 0.8),
        ([1, 2], [3, 3], None),
        ([1], [1], None),
    ],
)
def test_kendall_tau_equals_hand_values(a, b, tau):
    """Full agreement, full reversal, one swap, ties, and nothing to order."""
    assert kendall_tau(a, b) == tau


def test_kendall_tau_equals_scipy_s_with_many_ties():
    """Thirty random rankings of nine items over five values."""
    rng = np.random.default_rng(7)
    for _ in range(30):
        a, b = rng.integers(0, 5, 9).tolist(), rng.integers(0, 5, 9).tolist()
        assert kendall_tau(a, b) == pytest.approx(kendalltau(a, b).statistic, abs=1e-4)


def test_clear_pairs_are_farther_apart_than_either_spread():
    """10 and 12 repeat within 3; 20 is far from both."""
    assert clear_pairs([10, 12, 20], [3, 0.5, 1]) == [(0, 2), (1, 2)]
    assert clear_pairs([10, 10], [0, 0]) == []


def test_discordant_pairs_are_the_reversed_ones():
    """Ties are not reversed."""
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert discordant(pairs, [1, 2, 3], [2, 1, 3]) == [(0, 1)]
    assert discordant(pairs, [1, 2, 3], [2, 2, 2]) == []


def test_rank_names_discordant_settings_by_stage():
    """Reality: fcfs slowest; the profile says lpm; a metric nobody has is left out."""

    def real(ttft_ms):
        known = {**dict.fromkeys(RANKED, ttft_ms), "cache_hit_rate_pct": None}
        return RealRuns(known, dict.fromkeys(RANKED), {})

    def simulated(ttft_ms):
        return {**dict.fromkeys(RANKED, ttft_ms), "cache_hit_rate_pct": None}

    stages = {"recorded": [simulated(31), simulated(19)], "profile": [simulated(20), simulated(30)]}
    ranking = rank(["fcfs", "lpm"], [real(30), real(20)], stages)
    assert set(ranking.agreements["profile"]) == set(RANKED) - {"cache_hit_rate_pct"}
    agreement = ranking.agreements["profile"]["mean_ttft_ms"]
    assert (agreement.tau, agreement.clear_pairs) == (-1, 1)
    assert agreement.discordant == (("fcfs", "lpm"),)
    assert ranking.agreements["recorded"]["mean_ttft_ms"].tau == 1
    assert ranking.agreements["recorded"]["mean_ttft_ms"].discordant == ()
