"""OpenAI's replies: whole ones, the chunks of streams, and errors."""

import time
from http import HTTPStatus
from typing import Any, Protocol

from sim.api.answer import Answer

Json = dict[str, Any]


def usage(answer: Answer) -> Json:
    """Tokens of the prompt, of them those in the cache, and of the output."""
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.num_tokens,
        "total_tokens": answer.prompt_tokens + answer.num_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }


def error(status: int, reason: str) -> Json:
    """The body of an error."""
    kind = HTTPStatus(status).phrase.title().replace(" ", "").removesuffix("Error") + "Error"
    return {"error": {"message": reason, "type": kind, "param": None, "code": status}}


class Form(Protocol):
    """How an interface writes an answer."""

    def whole(self, text: str, answer: Answer) -> Json: ...

    def chunk(self, text: str, answer: Answer, *, is_first: bool, ends: bool) -> Json: ...

    def usage_chunk(self, answer: Answer) -> Json: ...


class CompletionForm:
    """Replies of `/v1/completions`."""

    def __init__(self, rid: str, model: str) -> None:
        self._head = {"id": f"cmpl-{rid}", "created": int(time.time()), "model": model}

    def whole(self, text: str, answer: Answer) -> Json:
        return self._reply([self._choice(text, answer, ends=True)]) | {"usage": usage(answer)}

    def chunk(self, text: str, answer: Answer, *, is_first: bool, ends: bool) -> Json:
        return self._reply([self._choice(text, answer, ends=ends)])

    def usage_chunk(self, answer: Answer) -> Json:
        return self._reply([]) | {"usage": usage(answer)}

    def _reply(self, choices: list[Json]) -> Json:
        return {**self._head, "object": "text_completion", "choices": choices}

    def _choice(self, text: str, answer: Answer, *, ends: bool) -> Json:
        reason = answer.finish_reason if ends else None
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}


class ChatForm:
    """Replies of `/v1/chat/completions`."""

    def __init__(self, rid: str, model: str) -> None:
        self._head = {"id": f"chatcmpl-{rid}", "created": int(time.time()), "model": model}

    def whole(self, text: str, answer: Answer) -> Json:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
        head = {**self._head, "object": "chat.completion"}
        return {**head, "choices": [choice], "usage": usage(answer)}

    def chunk(self, text: str, answer: Answer, *, is_first: bool, ends: bool) -> Json:
        delta: Json = {"content": text}
        if is_first:
            delta["role"] = "assistant"
        reason = answer.finish_reason if ends else None
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": reason}])

    def usage_chunk(self, answer: Answer) -> Json:
        return self._chunk([]) | {"usage": usage(answer)}

    def _chunk(self, choices: list[Json]) -> Json:
        return {**self._head, "object": "chat.completion.chunk", "choices": choices}
