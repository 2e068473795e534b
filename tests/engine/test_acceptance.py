"""How many draft tokens are accepted: the draws, and what they do not depend on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import draws
from sim.engine.acceptance import AcceptanceByPosition, RecordedAcceptance, probability_for

PLACES = range(1, 4001)


def test_shares_of_accepted_tokens_are_the_probabilities():
    """0.8 of the first draft tokens; of those, 0.5 of the second; never the third."""
    acceptance = AcceptanceByPosition([0.8, 0.5, 0.0])
    counts = [acceptance.num_accepted("r", 7, place, 3) for place in PLACES]
    assert sum(count >= 1 for count in counts) / len(counts) == pytest.approx(0.8, abs=0.02)
    assert sum(count >= 2 for count in counts) / len(counts) == pytest.approx(0.4, abs=0.02)
    assert max(counts) == 2


@given(
    st.lists(st.sampled_from([0.0, 0.3, 0.7, 0.95, 1.0]), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
    st.integers(1, 10**6),
)
def test_draws_are_those_of_the_oracles(probabilities, seed, place):
    """They draw one place at a time, with Python's whole numbers."""
    most = len(probabilities)
    proposed = [1 / (1 + most)] * (1 + most)
    acceptance = AcceptanceByPosition(probabilities, proposed)
    drafts = {"by_position": probabilities, "proposed": proposed}
    accepted = draws.num_accepted({"speculation": drafts}, seed, place, most)
    assert acceptance.num_accepted("r", seed, place, most) == accepted
    found = draws.num_proposed({"speculation": drafts}, seed, place)
    assert acceptance.num_proposed("r", seed, place, most) == found


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 99), st.integers(1, 99))
def test_fewer_drafts_accept_the_same_beginning(probabilities, seed, place):
    """A step that verifies fewer draft tokens accepts those of the same guess."""
    acceptance = AcceptanceByPosition(probabilities)
    whole = acceptance.num_accepted("r", seed, place, len(probabilities))
    for most in range(len(probabilities)):
        assert acceptance.num_accepted("r", seed, place, most) == min(whole, most)


def test_shares_of_proposed_tokens():
    """None at 0.3 of the places, one at 0.2, three at the others; at most what is asked for."""
    acceptance = AcceptanceByPosition([1.0] * 3, [0.3, 0.2, 0.0, 0.5])
    counts = [acceptance.num_proposed("r", 7, place, 3) for place in PLACES]
    shares = [counts.count(count) / len(counts) for count in range(4)]
    assert shares == pytest.approx([0.3, 0.2, 0, 0.5], abs=0.02)
    assert max(acceptance.num_proposed("r", 7, place, 2) for place in PLACES) == 2
    assert AcceptanceByPosition([1.0] * 3).num_proposed("r", 7, 1, 3) == 3


@given(st.integers(1, 10), st.floats(0, 1))
def test_mean_length_is_what_the_probability_yields(num_drafts, share):
    mean_length = 1 + share * num_drafts
    found = probability_for(mean_length, num_drafts)
    assert sum(found**i for i in range(num_drafts + 1)) == pytest.approx(mean_length)


def test_recorded_counts_cut_the_output_into_pieces():
    """2, 0, 1: pieces of 3, 1 and 2 tokens after the first token, and then anew."""
    acceptance = RecordedAcceptance({"r": [2, 0, 1]})
    place, seen = 1, []
    for _ in range(6):
        seen.append(acceptance.num_accepted("r", 0, place, 5))
        place += 1 + seen[-1]
    assert seen == [2, 0, 1, 2, 0, 1]
    assert acceptance.num_accepted("r", 0, 2, 5) == 1  # inside the first piece
    assert acceptance.num_accepted("r", 0, 1, 1) == 1  # no more than there are drafts


def test_recorded_proposals_begin_with_the_pieces():
    """2 of 3 accepted, 0 of 0, 1 of 4; inside a piece, what its drafts have left."""
    acceptance = RecordedAcceptance({"r": [2, 0, 1]}, {"r": [3, 0, 4]})
    proposed = [acceptance.num_proposed("r", 0, place, 9) for place in range(1, 8)]
    assert proposed == [3, 2, 1, 0, 4, 3, 3]
    assert acceptance.num_proposed("r", 0, 5, 2) == 2
    assert RecordedAcceptance({"r": [2]}).num_proposed("r", 0, 1, 5) == 5


def test_request_that_was_not_recorded_takes_the_list_of_another():
    acceptance = RecordedAcceptance({"a": [1], "b": [3]})
    assert {acceptance.num_accepted("x", seed, 1, 5) for seed in range(20)} == {1, 3}
