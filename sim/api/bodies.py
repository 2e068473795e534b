"""The bodies of requests, as far as they matter here; what else a client sends is ignored.

Refused is what an answer would lack without a word: several answers, log probabilities, images.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

_MOST_TOKENS = 1 << 30


class StreamOptions(BaseModel):
    """What a stream's chunks contain."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Body(BaseModel):
    """What both interfaces have."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    ignore_eos: bool = False
    priority: int | None = None


class CompletionBody(Body):
    """The body of `/v1/completions`."""

    prompt: str | list[int] | list[str] | list[list[int]]
    max_tokens: int | None = Field(default=16, ge=1, le=_MOST_TOKENS)
    logprobs: None = None
    echo: Literal[False] | None = None

    @field_validator("prompt")
    @classmethod
    def _is_one(cls, prompt: Any) -> Any:
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) != 1:
                raise ValueError("must be one prompt: send others in requests of their own")
            prompt = prompt[0]
        if not prompt:
            raise ValueError("must not be empty")
        if isinstance(prompt, list) and not all(0 <= token < 1 << 62 for token in prompt):
            raise ValueError("token ids must be at least 0")
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
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join([part.text for part in self.content])
        return self.content or ""


class ChatBody(Body):
    """The body of `/v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1, le=_MOST_TOKENS)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=_MOST_TOKENS)
    logprobs: Literal[False] | None = None

    @property
    def most_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def text(self) -> str:
        """The conversation as one text; that of a longer conversation begins with it."""
        parts = [f"<{message.role}>\n{message.text}" for message in self.messages]
        return "\n".join([*parts, "<assistant>\n"])
