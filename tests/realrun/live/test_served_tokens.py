"""What ends an answer: end tokens, and what its client named."""

import numpy as np
import pytest

from realrun.live.served_tokens import ServedTokens, Wanted
from realrun.live.texts import ByteTexts
from realrun.tokens.sampling import Choice
from sim.core.batch import Batch, ForwardMode, PrefillRow
from tests.support.workloads import scripted

DRAWN, PLAIN = Choice(1.0, seed=5), Choice(0.0)


@pytest.fixture
def make():
    """Makes the tokens of one request, whose end token is 2."""

    def tokens(wanted, *, ignore_eos=False):
        made = ServedTokens(300, frozenset({2}), ByteTexts(300))
        made.expect("a", wanted)
        request = scripted("a", (1, 5), output=99, ignore_eos=ignore_eos)
        assert made.add(request) is request
        return made

    return tokens


def step(tokens, token):
    """One decode step; returns whether it ended the answer."""
    batch = Batch(ForwardMode.DECODE, (), ("a",), 0, 0)
    return tokens.take(batch, np.array([token])).finished_rids == ("a",)


@pytest.mark.parametrize(
    ("wanted", "output", "end_tokens"),
    [
        (Wanted(PLAIN), [65, 2], 1),
        (Wanted(DRAWN, stop_token_ids=frozenset({7})), [65, 9, 7], 1),
        (Wanted(PLAIN, stop=("BC", "XY")), [65, 66, 67], 0),
        (Wanted(PLAIN, stop=("é",)), [65, 0xC3, 0xA9], 0),
    ],
)
def test_answer_ends_with_a_token_or_a_text(make, wanted, output, end_tokens):
    tokens = make(wanted)
    assert ("a" in tokens.choices) == (wanted.choice is DRAWN)
    assert [step(tokens, token) for token in output] == [False] * (len(output) - 1) + [True]
    assert tokens.output_part("a", 1, len(output)) == output[1:]
    tokens.forget("a")
    assert tokens.take_output("a", len(output)) == (output, end_tokens)
    assert not tokens.choices
    assert not tokens.final_outputs


def test_answer_that_ignores_the_end_token_heeds_its_client(make):
    tokens = make(Wanted(PLAIN, stop_token_ids=frozenset({7})), ignore_eos=True)
    assert [step(tokens, token) for token in (2, 2, 7)] == [False, False, True]


def test_stop_text_is_found_in_what_was_computed_again(make):
    """The token in flight when a request is put back comes again, perhaps as another one."""
    tokens = make(Wanted(PLAIN, stop=("BC",)))
    for token in (65, 66, 88):
        assert not step(tokens, token)
    again = Batch(ForwardMode.EXTEND, (PrefillRow("a", 0, 7, 2, True),), (), 7, 0)
    assert tokens.take(again, np.array([67])).finished_rids == ("a",)


def test_drafts_end_where_the_answer_ends(make):
    tokens = make(Wanted(PLAIN, stop=("BC",)))
    sampled = np.array([65, 66, 67, 68])
    assert tokens.continuation("a", 0, sampled).tolist() == [65, 66, 67]
    assert tokens.extend("a", 0, sampled[:3])
