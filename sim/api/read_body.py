"""Reads the bodies of requests, within limits, and big ones beside the event loop."""

import asyncio
import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sim.api.answer import BadTextError, Texts, TextStream, Turn
from sim.core.messages import printable_line
from sim.core.tokens import TokenIds

# How long a client may take to send a body, in seconds.
BODY_LIMIT_S = 60.0
_MIB = 1 << 20
_MOST_BYTES = 64 * _MIB
# A context's text in JSON: four characters a token, each of up to 12 bytes (`\ud83d\ude00`).
_BYTES_PER_TOKEN, _COMMAS_PER_TOKEN = 48, 4
# No token is written in more characters, on average; a text of more is not cut into tokens.
_CHARACTERS_PER_TOKEN, _MORE_CHARACTERS = 16, 1 << 16
# Those of 16,384 messages. While they are parsed, no other thread runs.
_MOST_STRINGS = 1 << 16
# Beside the prompt: settings, tools and schemas.
_MORE_BYTES, _MORE_COMMAS = _MIB, 1 << 16
# Up to this size a body takes less than a few milliseconds.
_SMALL_BYTES = 1 << 15
# What larger bodies that are under way may take together.
_MOST_HELD = 256 * _MIB
# What is left of a slow body is not read.
_CLOSE = {"Connection": "close"}
_MOST_CHARACTERS = 200
# What pydantic says before the text of a ValueError.
_PREFIX = "Value error, "
B = TypeVar("B", bound=BaseModel)
R = TypeVar("R")


class BadBodyError(Exception):
    """The body of a request is not what it should be."""


class _LimitedTexts:
    """Refuses, before it is cut, a text that surely has more tokens than the context."""

    def __init__(self, texts: Texts, most_characters: int) -> None:
        self._texts, self._most = texts, most_characters

    def tokens(self, text: str) -> TokenIds:
        self._check(len(text))
        return self._texts.tokens(text)

    def conversation(self, turns: Sequence[Turn]) -> TokenIds:
        self._check(sum(len(text) for _, text in turns))
        return self._texts.conversation(turns)

    def stream(self) -> TextStream:
        return self._texts.stream()

    def _check(self, num_characters: int) -> None:
        if num_characters > self._most:
            raise BadTextError(f"the text has more than {self._most:,} characters, the most here")


class BodyReader:
    """Reads bodies and uses them: small ones at once, others one by one in a thread."""

    def __init__(self, texts: Texts, context_tokens: int | None, limit_s: float) -> None:
        """Read bodies.

        Args:
            texts: turns text into tokens.
            context_tokens: most tokens of a prompt, from which most bytes follow; None: not known.
            limit_s: how long a body may take to arrive.
        """
        tokens = _MOST_BYTES if context_tokens is None else context_tokens
        characters = _MORE_CHARACTERS + _CHARACTERS_PER_TOKEN * tokens
        # Each thread has its own: no two may use one at a time.
        self._texts = _LimitedTexts(texts, characters)
        self._texts_of_thread = _LimitedTexts(copy.deepcopy(texts), characters)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")
        self._limit_s = limit_s
        self._most_bytes = min(_MOST_BYTES, _MORE_BYTES + _BYTES_PER_TOKEN * tokens)
        self._most_commas = _MORE_COMMAS + _COMMAS_PER_TOKEN * tokens
        self._num_held = 0

    async def use(self, request: Request, kind: type[B], work: Callable[[B, Texts], R]) -> R:
        """Read a body and return what `work` makes of it.

        Raises:
            BadBodyError: it is no JSON, or something in it is wrong.
            HTTPException: it is too long or does not come in time, or too many are under way.
            Exception: what `work` raises.
        """
        body = bytearray()
        try:
            await self._receive(request, body)
            if len(body) <= _SMALL_BYTES:
                return work(_parsed(body, kind), self._texts)
            loop = asyncio.get_running_loop()
            texts = self._texts_of_thread
            return await loop.run_in_executor(
                self._thread, lambda: work(self._checked(body, kind), texts)
            )
        finally:
            self._num_held -= len(body)

    async def _receive(self, request: Request, body: bytearray) -> None:
        num_bytes = 0
        try:
            async with asyncio.timeout(self._limit_s):
                # The rest of a long body is read, too: a client sees no answer before it has sent
                # all, and a connection closed meanwhile looks like a failure.
                async for part in request.stream():
                    num_bytes += len(part)
                    if num_bytes > _MOST_BYTES:
                        break
                    if num_bytes <= self._most_bytes:
                        body += part
                        self._num_held += len(part)
                    if self._num_held > _MOST_HELD and len(body) > _SMALL_BYTES:
                        raise HTTPException(503, "too many long bodies at once: try later")
        except TimeoutError:
            reason = f"the body took more than {self._limit_s:g} s"
            raise HTTPException(408, reason, _CLOSE) from None
        if num_bytes > self._most_bytes:
            reason = f"the body has more than {self._most_bytes:,} bytes, the most here"
            raise HTTPException(413, reason)

    def _checked(self, body: bytearray, kind: type[B]) -> B:
        # A value takes two bytes of a body, but many more once it is parsed. A comma follows each.
        if body.count(b",") > self._most_commas:
            raise BadBodyError(f"the body has more than {self._most_commas:,} values")
        if body.count(b'"') - body.count(b'\\"') > 2 * _MOST_STRINGS:
            raise BadBodyError(f"the body has more than {_MOST_STRINGS:,} texts, keys included")
        return _parsed(body, kind)


def _parsed(body: bytearray, kind: type[B]) -> B:
    try:
        return kind.model_validate_json(body)
    except ValidationError as wrong:
        first = wrong.errors(include_input=False)[0]
        # Not the types that were tried for a key of several, such as `list[int]`.
        place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
        reason = first["msg"].removeprefix(_PREFIX)
        text = f"{place}: {reason}" if place else reason
        raise BadBodyError(printable_line(text, _MOST_CHARACTERS)) from None
