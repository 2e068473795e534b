"""SGLang's own interface for text, `/generate`: its body and its replies (0.5.23, io_struct.py).

Each chunk of a stream has all text so far, unlike in OpenAI's interfaces.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sim.api.answer import Answer
from sim.api.bodies import MAX_TOKEN_ID, MOST_TOKENS, Body, Priority
from sim.api.replies import Json


class GenerateParams(Body):
    """How one answer is generated."""

    max_new_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    min_new_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)


class GenerateBody(BaseModel):
    """The body of `/generate`, as far as it matters here."""

    model_config = ConfigDict(extra="ignore")

    text: str | None = None
    input_ids: list[int] | None = None
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


class GenerateForm:
    """Replies of `/generate`."""

    def __init__(self, rid: str, _model: str) -> None:
        self._rid, self._text = rid, ""

    def whole(self, text: str, answer: Answer) -> Json:
        return self._reply(text, answer, ends=True)

    def chunk(self, text: str, answer: Answer, *, is_first: bool, ends: bool) -> Json:
        self._text += text
        return self._reply(self._text, answer, ends=ends)

    def usage_chunk(self, answer: Answer) -> Json:
        return self._reply(self._text, answer, ends=True)

    def _reply(self, text: str, answer: Answer, *, ends: bool) -> Json:
        meta: dict[str, Any] = {
            "id": self._rid,
            "finish_reason": _finish_reason(answer) if ends else None,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.num_tokens,
            "cached_tokens": answer.cached_tokens,
        }
        return {"text": text, "meta_info": meta}


def _finish_reason(answer: Answer) -> Json:
    if answer.finish_reason == "length":
        return {"type": "length", "length": answer.num_tokens}
    return {"type": answer.finish_reason}
