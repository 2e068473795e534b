"""Text to tokens and back, for real models: with a tokenizer, or byte by byte."""

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from realrun.model.config import one_line, quiet_transformers
from sim.api.answer import (
    BadTextError,
    Texts,
    TextStream,
    Turn,
    plain_conversation,
    split_words,
    token_word,
)
from sim.core.errors import InputError
from sim.core.tokens import TokenIds

_NUM_BYTES = 256
_LONGEST_REASON = 300
# A folder with one of these has a tokenizer.
_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
# What decoders write in place of half a character.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TokenizerTexts:
    """Tokens by the model's tokenizer, and conversations by its chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def tokens(self, text: str) -> TokenIds:
        return _array(self._tokenizer.encode(text))

    def conversation(self, turns: Sequence[Turn]) -> TokenIds:
        if not self._tokenizer.chat_template:
            return self.tokens(plain_conversation(turns))
        messages = [{"role": role, "content": text} for role, text in turns]
        try:
            ids = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=False
            )
        except Exception as error:  # a template may refuse anything, in its own words
            reason = f"messages: refused by the chat template: {one_line(error)}"
            raise BadTextError(reason[:_LONGEST_REASON]) from None
        return _array(ids)

    def stream(self) -> TextStream:
        return _TokenizerStream(self._tokenizer)


class _TokenizerStream:
    """Decodes only the last tokens again: their text may depend on the ones just before them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Tokens whose text is shown but which the next text may depend on, and then new ones.
        self._ids: list[int] = []
        self._num_shown = 0

    def add(self, token_ids: Sequence[int]) -> str:
        parts = []
        for token in token_ids:
            self._ids.append(token)
            before, after = self._decoded()
            if len(after) > len(before) and not after.endswith(_REPLACEMENT):
                parts.append(after[len(before) :])
                self._ids = self._ids[self._num_shown :]
                self._num_shown = len(self._ids)
        return "".join(parts)

    def end(self) -> str:
        before, after = self._decoded()
        return after[len(before) :]

    def _decoded(self) -> tuple[str, str]:
        decode = self._tokenizer.decode
        shown = decode(self._ids[: self._num_shown], skip_special_tokens=True)
        return shown, decode(self._ids, skip_special_tokens=True)


class ByteTexts:
    """Text for models without a tokenizer: its bytes in UTF-8 are tokens 0 to 255.

    A token from 256 on is written as a word such as ` w1f3a`, and such a word is that token again,
    so that the KV of an answer is found when a client sends it back in a conversation.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def tokens(self, text: str) -> TokenIds:
        if self._vocab_size < _NUM_BYTES:
            raise BadTextError(
                f"the model has no tokenizer, and with {self._vocab_size} tokens none for each"
                " byte: send token ids"
            )
        ids: list[int] = []
        for part in split_words(text):
            if isinstance(part, str):
                ids += part.encode("utf-8", "replace")
            else:
                for token in part:
                    is_token = _NUM_BYTES <= token < self._vocab_size
                    ids += [token] if is_token else token_word(token).encode()
        return _array(ids)

    def conversation(self, turns: Sequence[Turn]) -> TokenIds:
        return self.tokens(plain_conversation(turns))

    def stream(self) -> TextStream:
        return _ByteStream()


class _ByteStream:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_ids: Sequence[int]) -> str:
        return "".join([self._text(token) for token in token_ids])

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)

    def _text(self, token: int) -> str:
        if token < _NUM_BYTES:
            return self._decoder.decode(bytes((token,)))
        rest = self.end()
        self._decoder.reset()
        return rest + token_word(token)


def model_texts(folder: Path | None, tokenizer: Path | None, vocab_size: int) -> Texts:
    """How a model's text is turned into tokens.

    Args:
        folder: the folder of its weights; None: they are random.
        tokenizer: a folder with a tokenizer, or a file `tokenizer.json`; None: that of `folder`,
            if it has one.
        vocab_size: the model's number of tokens.

    Raises:
        InputError: the tokenizer cannot be read, or has more tokens than the model.
    """
    found = tokenizer or folder
    if found is None or (tokenizer is None and not any((found / name).exists() for name in _FILES)):
        return ByteTexts(vocab_size)
    try:
        with quiet_transformers():
            if found.is_file():
                loaded = PreTrainedTokenizerFast(tokenizer_file=str(found))
            else:
                loaded = AutoTokenizer.from_pretrained(str(found), local_files_only=True)
    except Exception as error:  # libraries read what somebody else may have made
        raise InputError(f"{found}: tokenizer cannot be read: {one_line(error)}") from None
    num_tokens = max(loaded.get_vocab().values(), default=-1) + 1
    if num_tokens > vocab_size:
        raise InputError(f"{found}: the tokenizer has {num_tokens} tokens, the model {vocab_size}")
    return TokenizerTexts(loaded)


def _array(ids: Sequence[int]) -> TokenIds:
    if not len(ids):
        raise BadTextError("the text has no tokens")
    return np.array(ids, dtype=np.int64)
