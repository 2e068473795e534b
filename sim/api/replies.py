"""Replies of OpenAI's interfaces and of SGLang's `/generate`, whole and as server-sent events.

In both cases the server stops an answer whose client has gone.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine
from http import HTTPStatus
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from sim.api.answer import Answer, Answerer, RefusedError, ShownText, Texts
from sim.api.bodies import StreamOptions

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


_DONE = "data: [DONE]\n\n"
# What nginx logs if a client has closed its connection.
CLIENT_HAS_GONE = 499


async def whole(
    request: Request, server: Answerer, texts: Texts, answer: Answer, form: Form
) -> Response:
    """Wait for the end of an answer, and send it."""
    if not await _came(request, _end(answer)):
        server.cancel(answer)
        return Response(status_code=CLIENT_HAS_GONE)
    if answer.finish_reason == "abort":
        return _aborted(answer)
    shown = ShownText(texts.stream(), answer.stop)
    text = shown.add(_output_ids(server, answer, 0, answer.num_tokens), ends=True)
    return JSONResponse(form.whole(text, answer))


async def stream(
    request: Request,
    server: Answerer,
    texts: Texts,
    answer: Answer,
    form: Form,
    options: StreamOptions,
) -> Response:
    """Send an answer token by token.

    Its first token is waited for, so that a request that gets none is answered with an error.
    """
    if not await _came(request, answer.begins()):
        server.cancel(answer)
        return Response(status_code=CLIENT_HAS_GONE)
    updates = answer.updates()
    first = await anext(updates, None)
    if answer.finish_reason == "abort" and (first is None or answer.refusal is not None):
        return _aborted(answer)
    shown = ShownText(texts.stream(), answer.stop)

    async def events() -> AsyncIterator[str]:
        try:
            part = first
            while part is not None:
                begin, end = part
                ends = answer.finish_reason is not None and end == answer.num_tokens
                text = shown.add(_output_ids(server, answer, begin, end), ends=ends)
                chunk = form.chunk(text, answer, is_first=begin == 0, ends=ends)
                if options.continuous_usage_stats:
                    chunk["usage"] = usage(answer)
                yield _event(chunk)
                part = None if ends else await anext(updates, None)
                if part is None and not ends:
                    # The answer has ended after its last token was sent.
                    rest = shown.add((), ends=True)
                    yield _event(form.chunk(rest, answer, is_first=False, ends=True))
            if options.include_usage:
                yield _event(form.usage_chunk(answer))
            yield _DONE
        finally:
            if answer.finish_reason is None:
                server.cancel(answer)

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(reply: Json) -> str:
    return f"data: {json.dumps(reply, separators=(',', ':'))}\n\n"


def _output_ids(server: Answerer, answer: Answer, first: int, end: int) -> list[int]:
    """Output tokens that have a text."""
    return server.output_ids(answer, first, min(end, answer.num_tokens - answer.hidden_tokens))


def _aborted(answer: Answer) -> Response:
    refusal = answer.refusal
    if refusal is None:
        refusal = RefusedError(503, "the server could not serve the request")
    return JSONResponse(error(refusal.status, refusal.reason), refusal.status)


async def _came(request: Request, awaited: Coroutine[None, None, None]) -> bool:
    """Wait for something, or until the client has gone; returns whether it came."""
    comes = asyncio.ensure_future(awaited)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({comes, gone}, return_when=asyncio.FIRST_COMPLETED)
        return comes.done()
    finally:
        comes.cancel()
        gone.cancel()


async def _end(answer: Answer) -> None:
    async for _ in answer.updates():
        pass


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
