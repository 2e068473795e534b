"""Text to tokens and back, with and without a tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.api.answer import EstimatedTokens
from sim.workload.traces import text_tokens

ANSWER = st.lists(st.integers(1000, 1 << 30), min_size=1, max_size=20)


@given(st.text(max_size=60), ANSWER, st.text(max_size=30))
def test_text_of_a_conversation_begins_with_the_tokens_of_its_earlier_part(asked, answer, then):
    """The answer's tokens are those that the server generated, so their KV is found."""
    texts = EstimatedTokens()
    asked = f"<user>\n{asked}\n<assistant>\n"
    before = texts.tokens(asked).tolist()
    after = texts.tokens(asked + texts.stream().add(answer) + f"\n<user>\n{then}").tolist()
    assert after[: len(before) + len(answer)] == before + answer


def test_text_without_words_has_a_token():
    assert len(EstimatedTokens().tokens("")) == 1


@given(st.text(max_size=60), st.integers(1, 20))
def test_tokens_do_not_depend_on_how_many_characters_are_read_at_once(text, block):
    expected = EstimatedTokens().tokens(text).tolist()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_tokens, "_BLOCK", block)
        assert EstimatedTokens().tokens(text).tolist() == expected
