"""Text to tokens and back, with and without a tokenizer."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from sim.api import answer as answers
from sim.api.answer import EstimatedTokens, ModelTokens
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


# Pieces of words, and words that are one digit too long.
PIECES = st.sampled_from([" w", "w", " ", "1", "f", "x", " w1f", " w123456789abc"])


@given(st.lists(PIECES, max_size=25).map("".join), st.integers(1, 20))
def test_words_are_found_however_few_characters_are_looked_at_at_once(text, window):
    found = re.split(r"((?: w[0-9a-f]{1,10})+)", text)
    expected = [
        [int(word[1:], 16) for word in part.split()] if number % 2 else part
        for number, part in enumerate(found)
        if part
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(answers, "_WINDOW", window)
        assert list(answers.split_words(text)) == expected


def test_long_answer_comes_in_parts():
    """Python runs no other thread while it matches an expression."""
    parts = list(answers.split_words(" w1f" * 10_000))
    assert [len(part) for part in parts] == [4096, 4096, 1808]


def test_tokens_are_those_of_the_tokenizers_own_call_for_one_text():
    """That call is not used: no other thread runs meanwhile."""
    tokenizer = Tokenizer(models.WordLevel({"a": 1, "b": 2, "?": 0}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    assert ModelTokens(tokenizer).tokens("b a c").tolist() == tokenizer.encode("b a c").ids
    assert ModelTokens(tokenizer).tokens("").tolist() == [0]


@given(st.text(max_size=60), st.integers(1, 20))
def test_tokens_do_not_depend_on_how_many_characters_are_read_at_once(text, block):
    expected = EstimatedTokens().tokens(text).tolist()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_tokens, "_BLOCK", block)
        assert EstimatedTokens().tokens(text).tolist() == expected
