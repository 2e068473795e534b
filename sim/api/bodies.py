"""The bodies of requests: as far as they matter, and read within limits.

Refused is what an answer would lack without a word: several answers, log probabilities, images.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sim.api.answer import BadTextError, Sampling, Texts, TextStream, Turn
from sim.core.errors import printable_line
from sim.core.tokens import TokenIds

MOST_TOKENS = 1 << 30
MAX_TOKEN_ID = (1 << 62) - 1
_MOST_STOPS = 64
# What a server without the setting would do, so that a client may say it.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "suffix": (None, ""),
    "best_of": (None, 1),
    "response_format": (None, {"type": "text"}),
    "tools": (None, []),
    "regex": (None,),
    "json_schema": (None,),
    "ebnf": (None,),
    "structured_outputs": (None,),
}


# One wrong element is told of, so that a long list of them does not become as many errors.
_Ids = Annotated[list[int], Field(fail_fast=True)]
_Text = Annotated[str, Field(min_length=1, max_length=1000)]
_MOST_PRIORITY = (1 << 31) - 1  # of a trace (sim/workload/traces/servetwin.py)
Priority = Annotated[int, Field(ge=-_MOST_PRIORITY, le=_MOST_PRIORITY)]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _one_prompt(prompt: Any) -> Any:
    """The only prompt of a list of prompts."""
    if not isinstance(prompt, str | list):
        raise ValueError("must be a text or a list of token ids")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) != 1:
            raise ValueError("must be one prompt: send others in requests of their own")
        return prompt[0]
    return prompt


class StreamOptions(BaseModel):
    """What a stream's chunks contain."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Body(BaseModel):
    """What both interfaces have."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    ignore_eos: bool = False
    priority: Priority | None = None
    min_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(1 << 63), lt=1 << 64)
    stop: Annotated[
        list[_Text] | None, Field(max_length=_MOST_STOPS), BeforeValidator(_as_list)
    ] = None
    stop_token_ids: (
        Annotated[list[Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]], Field(max_length=1024)] | None
    ) = None

    @property
    def sampling(self) -> Sampling:
        extra = self.model_extra or {}
        others = [key for key, neutral in _NEUTRAL.items() if extra.get(key) not in neutral]
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            stop=tuple(self.stop or ()),
            stop_token_ids=tuple(self.stop_token_ids or ()),
            not_followed=others[0] if others else None,
        )


class CompletionBody(Body):
    """The body of `/v1/completions`."""

    # In this order, an error in a list is told as one of its tokens.
    prompt: Annotated[_Ids | str, BeforeValidator(_one_prompt)]
    max_tokens: int | None = Field(default=16, ge=1, le=MOST_TOKENS)
    logprobs: None = None
    echo: Literal[False] | None = None

    @field_validator("prompt")
    @classmethod
    def _has_tokens(cls, prompt: list[int] | str) -> list[int] | str:
        if not prompt:
            raise ValueError("must not be empty")
        if isinstance(prompt, list) and not all(0 <= token <= MAX_TOKEN_ID for token in prompt):
            raise ValueError("token ids must be at least 0 and below 2**62")
        return prompt


class TextPart(BaseModel):
    """A part of a message."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(extra="ignore")

    role: str
    content: Annotated[list[TextPart], Field(fail_fast=True)] | str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join([part.text for part in self.content])
        return self.content or ""


class ChatBody(Body):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1)]
    max_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    logprobs: Literal[False] | None = None

    @property
    def most_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def turns(self) -> list[tuple[str, str]]:
        """Who spoke, and what was said."""
        return [(message.role, message.text) for message in self.messages]


class GenerateParams(Body):
    """How one answer is generated."""

    max_new_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    min_new_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)


class GenerateBody(BaseModel):
    """The body of `/generate`, as far as it matters here."""

    model_config = ConfigDict(extra="ignore")

    text: str | None = None
    input_ids: _Ids | None = None
    sampling_params: GenerateParams = GenerateParams()
    stream: bool = False
    priority: Priority | None = None
    return_logprob: bool | None = None

    @model_validator(mode="after")
    def _has_one_prompt(self) -> "GenerateBody":
        if bool(self.text) == bool(self.input_ids):
            raise ValueError("one of text and input_ids is required, and must not be empty")
        if self.input_ids is not None and not all(
            0 <= token <= MAX_TOKEN_ID for token in self.input_ids
        ):
            raise ValueError("input_ids: token ids must be at least 0 and below 2**62")
        if self.return_logprob:
            raise ValueError("return_logprob: there are no log probabilities")
        return self

    @property
    def prompt(self) -> str | list[int]:
        return self.text or self.input_ids or []


class TokenizeBody(BaseModel):
    """The body of `/tokenize`."""

    model_config = ConfigDict(extra="ignore")

    prompt: str | None = None
    messages: Annotated[list[Message], Field(fail_fast=True)] | None = None

    @model_validator(mode="after")
    def _has_one(self) -> "TokenizeBody":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("one of prompt and messages is required")
        return self


class DetokenizeBody(BaseModel):
    """The body of `/detokenize`."""

    model_config = ConfigDict(extra="ignore")

    tokens: Annotated[_Ids, Field(max_length=1 << 20)]

    @model_validator(mode="after")
    def _are_ids(self) -> "DetokenizeBody":
        if not all(0 <= token <= MAX_TOKEN_ID for token in self.tokens):
            raise ValueError("token ids must be at least 0 and below 2**62")
        return self


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

        `context_tokens` are the most tokens of a prompt, from which most bytes follow; None: not
        known. A body may take `limit_s` to arrive.
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
