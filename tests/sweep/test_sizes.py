"""The search for the smallest number for which something holds."""

from hypothesis import given
from hypothesis import strategies as st

from sim.sweep.capacity.sizes import Bracket, Replicas


def run(bracket, wanted):
    tried = []
    while (number := bracket.next_trial) is not None:
        tried.append(number)
        bracket.tell(number, holds=number >= wanted)
    return tried


@given(st.integers(1, 4096), st.integers(1, 5000), st.integers(1, 5000))
def test_bracket_finds_the_smallest_number_and_tries_both_ends(limit, wanted, guess):
    """In at most three trials for each doubling of the limit, and never the same one twice."""
    bracket = Bracket(limit, guess)
    tried = run(bracket, wanted)
    assert bracket.high == (wanted if wanted <= limit else None)
    assert {bracket.low, bracket.high} - {0, None} <= set(tried)
    assert bracket.low == min(limit, wanted - 1)
    assert len(tried) == len(set(tried)) <= 3 * limit.bit_length() + 3


def test_bracket_takes_two_trials_if_the_guess_is_right():
    assert run(Bracket(64, 5), 5) == [5, 4]
    assert run(Bracket(64), 5) == [1, 64, 8, 2, 4, 5]
    assert run(Bracket(64, 3), 5) == [3, 4, 6, 5]


def test_replicas_begin_with_those_that_the_traffic_keeps_busy():
    """Fewer than four fifths of these are not expected to do, so they cost too little to try."""
    sizes = Replicas(64, 9.2)
    assert sizes.next_trials == [(10,)]
    assert sizes.best_possible == (8,)
    assert Replicas(4, 9.2).next_trials == [(4,)]


@given(st.integers(1, 64), st.floats(0.01, 100), st.integers(1, 80), st.integers(1, 80))
def test_replicas_are_found_again_whatever_the_first_search_found(limit, busy, first, second):
    """With other seeds another number may do; what trials say of the load only orders them."""
    sizes = Replicas(limit)
    for wanted in (first, second):
        while sizes.next_trials:
            [size] = sizes.next_trials
            sizes.tell(size, holds=size[0] >= wanted, busy=busy)
        assert sizes.best == ((wanted,) if wanted <= limit else None)
        if sizes.best is None:
            assert sizes.nearest_failed == (limit,)
            return
        assert sizes.best_possible == sizes.best
        sizes.begin_again()
        assert sizes.best_possible == (wanted,)
