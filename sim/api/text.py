"""Text to tokens, tokens to text, and the text of an answer as its client sees it.

With a tokenizer, as the model does it. Without one, the number of a text's tokens is estimated from
its length, and an output token is written as a word such as ` w1f3a`. That word is the same token
again when a client sends it back in a conversation, so that the answer's KV is found in the cache.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sim.core.tokens import TokenIds
from sim.workload.config import DEFAULT_CHARACTERS_PER_TOKEN
from sim.workload.traces.text_tokens import estimated_token_ids, load_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Who speaks, and what was said.
Turn = tuple[str, str]

_ANSWER = re.compile(r"((?: w[0-9a-f]{1,10})+)")


class BadTextError(Exception):
    """A text or a conversation has no tokens here; the message is for the client."""


class TextStream(Protocol):
    """The text of one answer, while its tokens come."""

    def add(self, token_ids: Sequence[int]) -> str:
        """The text that the next tokens complete."""
        ...

    def end(self) -> str:
        """What is left after the last token, such as half a character."""
        ...


class Texts(Protocol):
    """Turns text into tokens and back."""

    def tokens(self, text: str) -> TokenIds:
        """The tokens of a text; int64, shape [num_tokens], at least one.

        Raises:
            BadTextError: it has none.
        """
        ...

    def conversation(self, turns: Sequence[Turn]) -> TokenIds:
        """The tokens of a conversation, up to where the next answer begins; as for `tokens`."""
        ...

    def stream(self) -> TextStream:
        """Begins the text of an answer."""
        ...


def plain_conversation(turns: Sequence[Turn]) -> str:
    """A conversation as one text; that of a longer conversation begins with it."""
    parts = [f"<{role}>\n{text}" for role, text in turns]
    return "\n".join([*parts, "<assistant>\n"])


def token_word(token: int) -> str:
    """How a token is written that has no text."""
    return f" w{token:x}"


def split_words(text: str) -> Iterator[str | list[int]]:
    """The parts of a text: text as it is, and tokens that `token_word` wrote."""
    # Every second part is tokens of an answer.
    for number, part in enumerate(_ANSWER.split(text)):
        if number % 2:
            yield [int(word[1:], 16) for word in part.split()]
        elif part:
            yield part


class _TokenByToken:
    """A text in which that of a token does not depend on what follows it."""

    def __init__(self, text: Callable[[int], str]) -> None:
        self._text = text

    def add(self, token_ids: Sequence[int]) -> str:
        return "".join([self._text(token) for token in token_ids])

    def end(self) -> str:
        return ""


class EstimatedTokens:
    """Text without a tokenizer."""

    def tokens(self, text: str) -> TokenIds:
        parts = [
            estimated_token_ids(part, DEFAULT_CHARACTERS_PER_TOKEN)
            if isinstance(part, str)
            else np.array(part, dtype=np.int64)
            for part in split_words(text)
        ]
        return np.concatenate(parts) if parts else estimated_token_ids("", 1)

    def conversation(self, turns: Sequence[Turn]) -> TokenIds:
        return self.tokens(plain_conversation(turns))

    def stream(self) -> TextStream:
        return _TokenByToken(token_word)


class ModelTokens:
    """Text as a model's tokenizer cuts it."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._size = tokenizer.get_vocab_size()

    def tokens(self, text: str) -> TokenIds:
        return np.array(self._tokenizer.encode(text).ids or [0], dtype=np.int64)

    def conversation(self, turns: Sequence[Turn]) -> TokenIds:
        return self.tokens(plain_conversation(turns))

    def stream(self) -> TextStream:
        # One by one: tokens that were drawn at random are no text together.
        return _TokenByToken(lambda token: str(self._tokenizer.decode([token % self._size])))


def texts(tokenizer: Path | None) -> Texts:
    """How to turn text into tokens: with a file `tokenizer.json` or its folder, or without any."""
    if tokenizer is None:
        return EstimatedTokens()
    return ModelTokens(load_tokenizer(tokenizer, "leave --tokenizer out"))


class ShownText:
    """Turns tokens into text as they come. It holds back what may be the beginning of a stop text.

    Example: with the stop text `END`, the text `a E` is shown as `a `, because `ND` may follow.

    Attributes:
        has_stopped: a stop text has come.
    """

    def __init__(self, stream: TextStream, stop: Sequence[str]) -> None:
        self._stream, self._stop = stream, stop
        self._held = ""
        self.has_stopped = False

    def add(self, token_ids: Sequence[int], *, ends: bool) -> str:
        """Further text to show; with `ends`, these are the last tokens."""
        text = self._held + self._stream.add(token_ids)
        if ends:
            text += self._stream.end()
        if self.has_stopped:
            return ""
        places = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        if places:
            self.has_stopped, self._held = True, ""
            return text[: min(places)]
        num_held = 0 if ends else _num_begun(text, self._stop)
        shown = len(text) - num_held
        self._held = text[shown:]
        return text[:shown]


def _num_begun(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of a text may be the beginning of a stop text."""
    return max(
        (
            size
            for stop in stops
            for size in range(1, min(len(stop) - 1, len(text)) + 1)
            if text.endswith(stop[:size])
        ),
        default=0,
    )
