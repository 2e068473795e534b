"""Text to tokens and back, with a tokenizer and byte by byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from realrun.live.texts import ByteTexts, TokenizerTexts, model_texts
from sim.api.answer import BadTextError
from sim.core.errors import InputError

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<s>{{ message.role }}: {{ message.content }}\n{% endfor %}<s>assistant:"
)


@pytest.fixture(scope="module")
def tokenizer():
    """A byte-level tokenizer, in which characters beyond ASCII have several tokens."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    inner.train_from_iterator(["the user said the assistant heard there"], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=TEMPLATE)


def streamed(texts, ids):
    stream = texts.stream()
    return [*(stream.add([token]) for token in ids), stream.end()]


@given(st.text(max_size=40), st.lists(st.integers(0, 282), max_size=30))
def test_text_comes_token_by_token_as_the_tokenizer_decodes_it_at_once(tokenizer, text, drawn):
    texts = TokenizerTexts(tokenizer)
    pieces = streamed(texts, tokenizer.encode(text))
    assert "".join(pieces) == text
    # Half characters wait for their other half.
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces) or "\ufffd" in text
    whole = tokenizer.decode(drawn, skip_special_tokens=True)
    assert "".join(streamed(texts, drawn)) == whole


def test_conversation_is_written_in_the_template(tokenizer):
    texts = TokenizerTexts(tokenizer)
    ids = texts.conversation([("user", "the user")])
    assert tokenizer.decode(ids) == "<s>user: the user\n<s>assistant:"
    with pytest.raises(BadTextError, match="no tools here"):
        texts.conversation([("tool", "x")])
    with pytest.raises(BadTextError, match="no tokens"):
        texts.tokens("")


@given(st.text(max_size=30), st.lists(st.integers(0, 4095), max_size=20))
def test_bytes_and_words_are_the_same_tokens_again(text, answer):
    """Of an answer at least those tokens that are words, and bytes that are text."""
    texts = ByteTexts(4096)
    assert "".join(streamed(texts, texts.tokens(text + ".").tolist())) == text + "."
    readable = [token if token > 127 else 65 for token in answer if not 128 <= token < 256]
    shown = "".join(streamed(texts, readable))
    assert texts.tokens("a" + shown).tolist()[1:] == readable


def test_model_without_a_token_for_each_byte_takes_token_ids_only():
    with pytest.raises(BadTextError, match="send token ids"):
        ByteTexts(97).tokens("a")


def test_tokenizer_of_the_model_is_found_and_checked(tokenizer, tmp_path):
    assert isinstance(model_texts(None, None, 300), ByteTexts)
    assert isinstance(model_texts(tmp_path, None, 300), ByteTexts)
    tokenizer.save_pretrained(tmp_path)
    found = model_texts(tmp_path, None, 300)
    assert found.conversation([("user", "a")]).tolist() == tokenizer.encode(
        "<s>user: a\n<s>assistant:"
    )
    from_file = model_texts(None, tmp_path / "tokenizer.json", 300)
    assert from_file.tokens("the user").tolist() == tokenizer.encode("the user")
    with pytest.raises(InputError, match="the model 200"):
        model_texts(tmp_path, None, 200)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": 3}))
    with pytest.raises(InputError, match="tokenizer cannot be read") as error:
        model_texts(tmp_path, None, 300)
    assert "\n" not in str(error.value)
