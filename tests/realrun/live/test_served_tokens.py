"""What ends an answer: end tokens, and what its client named."""

import numpy as np
import pytest

from realrun.live.served_tokens import AnswerParams, ServedTokens
from realrun.live.texts import ByteTexts
from realrun.tokens.sampling import SamplingParams
from sim.core.batch import Batch, ForwardMode, PrefillRow
from tests.support.workloads import scripted

DRAWN, PLAIN = SamplingParams(1.0, seed=5), SamplingParams(0.0)


@pytest.fixture
def make():
    """Makes the tokens of one request, whose end token is 2."""

    def tokens(params, *, ignore_eos=False):
        made = ServedTokens(300, frozenset({2}), ByteTexts(300))
        made.expect("a", params)
        request = scripted("a", (1, 5), output=99, ignore_eos=ignore_eos)
        assert made.add(request) is request
        return made

    return tokens


def step(tokens, token):
    """One decode step; returns whether it ended the answer."""
    batch = Batch(ForwardMode.DECODE, (), ("a",), 0, 0)
    return tokens.take(batch, np.array([token])).finished_rids == ("a",)


@pytest.mark.parametrize(
    ("params", "output", "end_tokens"),
    [
        (AnswerParams(PLAIN), [65, 2], 1),
        (AnswerParams(DRAWN, stop_token_ids=frozenset({7})), [65, 9, 7], 1),
        (AnswerParams(PLAIN, stop=("BC", "XY")), [65, 66, 67], 0),
        (AnswerParams(PLAIN, stop=("é",)), [65, 0xC3, 0xA9], 0),
    ],
)
def test_answer_ends_with_a_token_or_a_text(make, params, output, end_tokens):
    tokens = make(params)
    assert ("a" in tokens.sampling_params) == (params.sampling is DRAWN)
    assert [step(tokens, token) for token in output] == [False] * (len(output) - 1) + [True]
    assert tokens.output_part("a", 1, len(output)) == output[1:]
    tokens.forget("a")
    assert tokens.take_output("a", len(output)) == (output, end_tokens)
    assert not tokens.sampling_params
    assert not tokens.final_outputs


def test_answer_that_ignores_the_end_token_heeds_its_client(make):
    tokens = make(AnswerParams(PLAIN, stop_token_ids=frozenset({7})), ignore_eos=True)
    assert [step(tokens, token) for token in (2, 2, 7)] == [False, False, True]


def test_stop_text_is_found_in_what_was_computed_again(make):
    """The token in flight when a request is put back comes again, perhaps as another one."""
    tokens = make(AnswerParams(PLAIN, stop=("BC",)))
    for token in (65, 66, 88):
        assert not step(tokens, token)
    again = Batch(ForwardMode.EXTEND, (PrefillRow("a", 0, 7, 2, True),), (), 7, 0)
    assert tokens.take(again, np.array([67])).finished_rids == ("a",)


def test_drafts_end_where_the_answer_ends(make):
    tokens = make(AnswerParams(PLAIN, stop=("BC",)))
    sampled = np.array([65, 66, 67, 68])
    assert tokens.continuation("a", 0, sampled).tolist() == [65, 66, 67]
    assert tokens.extend("a", 0, sampled[:3])
