"""An answer: what a client asks for, what a server knows of it, and how a client waits for more."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from sim.core.tokens import TokenIds


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a client asks for; None: the server's default.

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

        Raises:
            RefusedError: the server does not take the request.
        """
        ...

    def output_ids(self, answer: Answer, first: int, end: int) -> list[int]:
        """Output tokens of an answer."""
        ...

    def cancel(self, answer: Answer) -> None:
        """The client has gone."""
        ...
