"""Agreement of orders, against values worked out by hand."""

import pytest

from calibrate.errors import RealRuns
from calibrate.ranking import RANKED, chance_of, clear_pairs, discordant, rank, tau_of


@pytest.mark.parametrize(
    ("a", "b", "tau", "p"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1, 1 / 24),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1, 1),
        # Pairs in order: 5 of 6; one reversed: (5 - 1) / 6. Three orders of 24 have one reversed.
        ([1, 2, 3, 4], [1, 2, 4, 3], 0.6667, 4 / 24),
        # 2 and 2 are no clear pair. Of the other five, 4 agree and 1 is tied.
        ([1, 2, 2, 3], [1, 2, 3, 3], 0.8, 4 / 24),
        ([1, 2], [3, 3], 0, 1),
        ([1, 2], [1, 2], 1, 1 / 2),
        ([1, 1], [1, 2], None, None),
        ([1], [1], None, None),
    ],
)
def test_tau_and_p_equal_hand_values(a, b, tau, p):
    """Full agreement, full reversal, one swap, ties, and nothing to order."""
    pairs = clear_pairs(a, [0] * len(a))
    assert tau_of(pairs, a, b) == tau
    assert chance_of(pairs, a, b) == pytest.approx(p, abs=1e-4)


def test_p_of_many_settings_is_small_for_their_order_only():
    """Ten settings: a sample of orders, the same each time."""
    a = list(range(10))
    pairs = clear_pairs(a, [0] * 10)
    assert chance_of(pairs, a, a) < 0.001
    jumbled = [3, 8, 1, 9, 0, 6, 2, 7, 5, 4]
    assert chance_of(pairs, a, jumbled) == chance_of(pairs, a, jumbled) > 0.3


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
        return RealRuns(known, dict.fromkeys(RANKED), dict.fromkeys(RANKED), {})

    def simulated(ttft_ms):
        return {**dict.fromkeys(RANKED, ttft_ms), "cache_hit_rate_pct": None}

    stages = {"recorded": [simulated(31), simulated(19)], "profile": [simulated(20), simulated(30)]}
    ranking = rank(["fcfs", "lpm"], [real(30), real(20)], stages)
    assert set(ranking.agreements["profile"]) == set(RANKED) - {"cache_hit_rate_pct"}
    agreement = ranking.agreements["profile"]["mean_ttft_ms"]
    assert (agreement.tau, agreement.clear_pairs, agreement.p) == (-1, 1, 1)
    assert agreement.discordant == (("fcfs", "lpm"),)
    assert ranking.agreements["recorded"]["mean_ttft_ms"].tau == 1
    assert ranking.agreements["recorded"]["mean_ttft_ms"].discordant == ()
