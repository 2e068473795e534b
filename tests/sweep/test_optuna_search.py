"""A search never chooses a setting twice, repeats for a seed, and stays near good settings."""

import pytest

from sim.sweep.tune.plan import Score
from sim.sweep.tune.search import GridSearch, OptunaSearch
from sim.sweep.tune.space import Continuous, Countable, Space

SPACE = Space(
    {
        "policy": Countable(4, False, values=("a", "b", "c", "d")),
        "chunk": Countable(8, True, low=1, step=1),
        "slots": Countable(6, True, low=10, step=10),
    }
)
BEST = (2, 5, 3)


def badness(places):
    """A score: 0 at BEST, larger with the distance from it."""
    policy, chunk, slots = places
    value = 3.0 * (policy != BEST[0]) + abs(chunk - BEST[1]) + abs(slots - BEST[2])
    return Score((-value,), value, None)


def searched(space, num_trials, *, first=None, seed=0, batch_size=4, judge=badness):
    """All settings that were chosen, in order."""
    search = OptunaSearch(space, first, seed=seed, num_trials=num_trials)
    chosen = []
    while len(chosen) < num_trials:
        batch = search.ask(min(batch_size, num_trials - len(chosen)))
        search.tell([judge(places) for places in batch])
        chosen += batch
    return chosen


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_search_finds_what_is_good_in_a_fraction_of_the_grid(seed):
    """40 of 192 settings, and none of them twice."""
    chosen = searched(SPACE, 40, seed=seed)
    assert min(badness(places).sought for places in chosen) <= 1
    assert len(set(chosen)) == 40
    # By chance, 2 of 40 would be that near on average.
    late = chosen[20:]
    assert sum(badness(places).sought <= 4 for places in late) > 10


def test_search_begins_where_it_is_told_to():
    """The scenario's own settings come first."""
    assert searched(SPACE, 5, first=(1, 7, 0))[0] == (1, 7, 0)


def test_search_of_a_seed_is_always_the_same():
    """And of another one it is another."""
    assert searched(SPACE, 24, seed=7) == searched(SPACE, 24, seed=7)
    assert searched(SPACE, 24, seed=7) != searched(SPACE, 24, seed=8)


def test_search_of_nearly_everything_repeats_nothing():
    """Where it would rather choose again what was good, chance finds something new."""
    space = Space({"a": Countable(5, True), "b": Countable(4, False, values=tuple("wxyz"))})
    chosen = searched(space, 19, judge=lambda places: Score((0.0,), float(sum(places)), None))
    assert len(set(chosen)) == 19


def test_search_learns_from_failures_and_from_broken_promises():
    """It keeps away from what fails, and near the edge of what meets the SLO."""
    space = Space({"x": Countable(40, True), "y": Continuous(0.1, 10.0, is_log=True)})

    def judge(places):
        if places[0] < 10:
            return None
        # The largest objective is where the SLO is missed.
        return Score((0.0,), -float(places[0]), shortfall=(places[0] - 25) / 40)

    chosen = searched(space, 40, judge=judge)
    assert all(0 <= x < 40 and 0.1 <= y <= 10 for x, y in chosen)
    late = [x for x, _ in chosen[20:]]
    assert sum(x < 10 for x in late) <= 2
    assert max(x for x in late if x <= 25) == 25
    # By chance it would be five, and seven or eight.
    assert sum(19 <= x <= 31 for x in late) > 10


def test_grid_tries_everything_once_from_where_it_is_told():
    """And ends when nothing is left."""
    grid = GridSearch(SPACE, (3, 1, 2))
    chosen = [*grid.ask(100), *grid.ask(1000)]
    assert chosen[0] == (3, 1, 2)
    assert len(chosen) == len(set(chosen)) == 4 * 8 * 6
    assert grid.ask(1) == []
