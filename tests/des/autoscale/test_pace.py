"""How fast a fleet follows its rule: sequences of Kubernetes' documentation, and some by hand."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sim.des.autoscale.scaler import Pace, PaceKeeper

S = 10**9
# Kubernetes' defaults.
UP = Pace(0, 4, 100, 15 * S)
DOWN = Pace(300 * S, None, 100, 15 * S)
FREELY = Pace(0, None, None, S)


def sizes(keeper, recommended, *, every_s=15, first=1):
    """The size of the fleet after each recommendation, one every `every_s`."""
    size, found = first, []
    for number, wish in enumerate(recommended, start=1):
        size = keeper.follow(number * every_s * S, size, wish)
        found.append(size)
    return found


def test_pace_growth_by_900_percent_is_that_of_the_documentation():
    """KEP-853: 1 -> 10 -> 100 -> 1000."""
    keeper = PaceKeeper(Pace(0, None, 900, 15 * S), DOWN, (1, 4096), 1)
    assert sizes(keeper, [4096] * 3) == [10, 100, 1000]


def test_pace_growth_by_one_replica_a_period_is_that_of_the_documentation():
    """KEP-853, scaled up slowly: 1 -> 2 -> 3 -> 4."""
    keeper = PaceKeeper(Pace(0, 1, None, 15 * S), DOWN, (1, 4096), 1)
    assert sizes(keeper, [4096] * 3) == [2, 3, 4]


def test_pace_growth_by_default_is_four_or_as_many_again():
    """The larger of both: 1, 5, 10, 20, and no more than the largest fleet."""
    assert sizes(PaceKeeper(UP, DOWN, (1, 30), 1), [99] * 4) == [5, 10, 20, 30]


def test_pace_two_decisions_in_a_period_share_what_it_allows():
    """Every 5 s: four more, none, none, and in the next period as many again."""
    keeper = PaceKeeper(UP, DOWN, (1, 99), 1)
    assert sizes(keeper, [99] * 5, every_s=5) == [5, 5, 5, 10, 10]


def test_pace_shrinking_waits_for_the_highest_recommendation_of_the_window():
    """9 is followed until it is 300 s old; then the highest of the later ones, 4."""
    keeper = PaceKeeper(UP, DOWN, (1, 99), 9)
    got = sizes(keeper, [2, 4, *[2] * 40], first=9)
    # At 300 s the initial 9 is as old as the window; the 4 came at 30 s.
    assert got[:19] == [9] * 19
    assert got[19:21] == [4, 4]
    assert got[21:] == [2] * 21


def test_pace_growing_waits_for_the_lowest_recommendation_of_its_window():
    """A peak of 30 s is not followed with a window of 60 s."""
    keeper = PaceKeeper(Pace(60 * S, None, None, S), FREELY, (1, 99), 3)
    assert sizes(keeper, [9, 9, 3, 9, 8, 9, 9, 9], first=3) == [3, 3, 3, 3, 3, 3, 8, 8]


def test_pace_shrinking_by_a_share_a_period():
    """Half of them, rounded in favour of fewer; then at most two where that is more."""
    half = PaceKeeper(UP, Pace(0, None, 50, 15 * S), (1, 99), 9)
    assert sizes(half, [0] * 4, first=9) == [4, 2, 1, 1]
    two = PaceKeeper(UP, Pace(0, 2, 10, 15 * S), (3, 99), 9)
    assert sizes(two, [0] * 4, first=9) == [7, 5, 3, 3]


paces = st.builds(
    Pace,
    st.sampled_from((0, 15 * S, 60 * S)),
    st.one_of(st.none(), st.integers(1, 5)),
    st.one_of(st.none(), st.sampled_from((10.0, 50.0, 100.0, 900.0))),
    st.sampled_from((15 * S, 60 * S)),
)


@given(
    up=paces,
    down=paces,
    wishes=st.lists(st.integers(-3, 40), min_size=1, max_size=30),
    low=st.integers(1, 5),
    more=st.integers(0, 20),
)
def test_pace_any_wishes_stay_within_the_sizes_and_go_where_they_point(up, down, wishes, low, more):
    """Never below the smallest or above the largest fleet, never against the recommendation."""
    found = sizes(PaceKeeper(up, down, (low, low + more), low), wishes, first=low)
    assert all(low <= size <= low + more for size in found)
    for (before, after), wish in zip(pairwise([low, *found]), wishes, strict=True):
        assert after == before or (after > before) == (wish > before)


def test_pace_neither_window_lets_the_other_direction_through():
    """A peak while the fleet waits to grow, and a dip while it waits to shrink, change nothing."""
    minute = Pace(60 * S, None, None, S)
    keeper = PaceKeeper(minute, minute, (1, 99), 5)
    assert sizes(keeper, [5, 9, 2, 9, 2, 9, 2, 9], first=5) == [5] * 8


@given(
    up_s=st.integers(0, 90),
    down_s=st.integers(0, 90),
    calls=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=40),
)
def test_pace_any_windows_allow_what_their_recommendations_do(up_s, down_s, calls):
    """The lowest of one window for growth, the highest of the other for shrinking."""
    keeper = PaceKeeper(Pace(up_s, None, None, 1), Pace(down_s, None, None, 1), (0, 99), 5)
    now, size, seen = 0, 5, [(0, 5)]
    for wait, wish in calls:
        now += wait
        most = min([wish, *(number for at, number in seen if at > now - up_s)])
        fewest = max([wish, *(number for at, number in seen if at > now - down_s)])
        seen.append((now, wish))
        expected = min(max(size, most), fewest)
        size = keeper.follow(now, size, wish)
        assert size == expected


class Counting(int):
    """A number that counts how often such are compared."""

    num_compared = 0

    def _noted(self, is_so):
        Counting.num_compared += 1
        return is_so

    def __lt__(self, other):
        return self._noted(int(self) < int(other))

    def __le__(self, other):
        return self._noted(int(self) <= int(other))

    def __gt__(self, other):
        return self._noted(int(self) > int(other))

    def __ge__(self, other):
        return self._noted(int(self) >= int(other))


def test_pace_many_recommendations_in_a_window_cost_no_more_each(monkeypatch):
    """A simulation with short intervals became slower and slower, up to the window's 300 s."""
    costs = []
    for num in (1000, 4000):
        monkeypatch.setattr(Counting, "num_compared", 0)
        keeper = PaceKeeper(UP, DOWN, (1, 99), 5)
        sizes(keeper, [Counting(3 + turn % 7) for turn in range(num)], every_s=0)
        costs.append(Counting.num_compared)
    assert costs[1] < 5 * costs[0]
