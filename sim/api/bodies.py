"""The bodies of requests, as far as they matter here; what else a client sends is ignored.

Refused is what an answer would lack without a word: several answers, log probabilities, images.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from sim.api.answer import Sampling

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
