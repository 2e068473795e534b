"""What a client asks for, what it is answered, and the text of both, with or without a tokenizer.

With a tokenizer, text is cut into tokens as the model does it. Without one, the number of a text's
tokens is estimated from its length, and an output token is written as a word such as ` w1f3a`. That
word is the same token again when a client sends it back in a conversation, so that the answer's KV
is found in the cache.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from sim.core.tokens import TokenIds
from sim.workload.config import DEFAULT_CHARACTERS_PER_TOKEN
from sim.workload.traces.text_tokens import estimated_token_ids, load_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a client wants tokens chosen, and where its answer ends; None: the server's default.

    Attributes:
        temperature: divides the logits; 0: always the most likely token.
        top_p: only the most likely tokens that together have this probability.
        top_k: only this number of most likely tokens; -1 and 0: all.
        min_p: only tokens with at least this share of the most likely token's probability.
        seed: the same seed, prompt and settings give the same tokens; None: any.
        stop: texts that end the answer. They are no part of it.
        stop_token_ids: tokens that end the answer. They are no part of its text.
        not_followed: a setting of the client that no real server here follows, although it would
            have to; None: there is none.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    not_followed: str | None = None


AS_THE_SERVER = Sampling()


# `stop`: an end token, or a stop text; `length`: as many tokens as were asked for, or as the server
# takes.
FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks for, in tokens.

    Attributes:
        prompt: its tokens; int64, shape [num_tokens].
        max_tokens: the client's limit on output tokens; None: as many as the server takes.
        ignore_eos: generate `max_tokens`, even after an end token.
        priority: as the server's flags define it; None: the client says nothing.
        sampling: how its tokens are chosen, and what ends it before that.
        min_tokens: no end token comes before this many tokens.
    """

    prompt: TokenIds
    max_tokens: int | None
    ignore_eos: bool
    priority: int | None = None
    sampling: Sampling = AS_THE_SERVER
    min_tokens: int = 0


class RefusedError(Exception):
    """A server does not take a request.

    Attributes:
        status: the HTTP status.
        reason: a sentence for the client.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def too_long(num_tokens: int, most_tokens: int) -> RefusedError:
    """A prompt does not fit."""
    reason = f"the prompt is too long: it has {num_tokens} tokens, and with the answer there is"
    return RefusedError(400, f"{reason} room for {most_tokens}")


class Answer:
    """One answer. A slow reader gets several tokens at once; nothing is queued for it.

    Attributes:
        num_tokens: output tokens so far.
        cached_tokens: prompt tokens that the cache held; 0 until the prompt is scheduled.
        finish_reason: why it has ended; None: it goes on.
        refusal: with the reason `abort`, what to tell the client; None: there is no more to say.
        stop: texts that end it; a server that generates no text has none.
        hidden_tokens: how many of its last tokens have no text: the one that ended it, or none.
    """

    def __init__(self, rid: str, prompt_tokens: int) -> None:
        self.rid = rid
        self.prompt_tokens = prompt_tokens
        self.num_tokens = 0
        self.cached_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.refusal: RefusedError | None = None
        self.stop: tuple[str, ...] = ()
        self.hidden_tokens = 0
        self._changed = asyncio.Event()

    def note(self) -> None:
        """Something has changed."""
        self._changed.set()

    async def begins(self) -> None:
        """Wait for its first token, or for its end without one."""
        while not self.num_tokens and self.finish_reason is None:
            self._changed.clear()
            await self._changed.wait()

    async def updates(self) -> AsyncIterator[tuple[int, int]]:
        """Yields ranges of output tokens, as positions `(first, end)`, until it has ended."""
        first = 0
        while True:
            # What changes from here on is seen in the next round.
            self._changed.clear()
            ended = self.finish_reason is not None
            if self.num_tokens > first:
                end = self.num_tokens
                yield first, end
                first = end
            if ended and first == self.num_tokens:
                return
            await self._changed.wait()


class Answerer(Protocol):
    """What answers requests."""

    def ask(self, asked: Asked) -> Answer:
        """Begin an answer.

        Raises RefusedError: the server does not take the request.
        """
        ...

    def output_ids(self, answer: Answer, first: int, end: int) -> list[int]:
        """Output tokens of an answer."""
        ...

    def cancel(self, answer: Answer) -> None:
        """The client has gone."""
        ...


# Who speaks, and what was said.
Turn = tuple[str, str]

_WORD = re.compile(r" w[0-9a-f]")
# Python runs one thread at a time, and none while an expression is matched. So a long text is
# matched in parts, between which others run.
_WORDS = re.compile(r"(?: w[0-9a-f]{1,10}){1,4096}")
_WINDOW = 1 << 16


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

        Raises BadTextError: it has none.
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
    """The parts of a text: text as it is, and tokens that `token_word` wrote.

    Long lists of tokens come as several.
    """
    shown = at = 0
    while at < len(text):
        # Two characters more than the window, so that a word is found that begins at its end.
        word = _WORD.search(text, at, at + _WINDOW + 2)
        if word is None:
            at += _WINDOW
        elif (words := _WORDS.match(text, word.start())) is not None:
            if shown < words.start():
                yield text[shown : words.start()]
            yield [int(each[1:], 16) for each in words[0].split()]
            shown = at = words.end()
    if shown < len(text):
        yield text[shown:]


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
        # Unlike `encode`, this lets other threads run meanwhile.
        (encoded,) = self._tokenizer.encode_batch_fast([text])
        return np.array(encoded.ids or [0], dtype=np.int64)

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
