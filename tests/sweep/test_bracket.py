"""The search for the smallest number for which something holds."""

from hypothesis import given
from hypothesis import strategies as st

from sim.sweep.capacity.sizes import Bracket


@given(st.integers(1, 4096), st.integers(1, 5000))
def test_bracket_finds_the_smallest_number_and_tries_both_ends(limit, wanted):
    """In at most two trials for each doubling of the limit, and never the same one twice."""
    bracket, tried = Bracket(limit), []
    while (number := bracket.next_trial) is not None:
        tried.append(number)
        bracket.tell(number, holds=number >= wanted)
    assert bracket.high == (wanted if wanted <= limit else None)
    assert {bracket.low, bracket.high} - {0, None} <= set(tried)
    assert bracket.low == min(limit, wanted - 1)
    assert len(tried) == len(set(tried)) <= 2 * limit.bit_length() + 2
