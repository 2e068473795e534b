"""Sends an answer to a client: as a stream of server-sent events, or whole.

A client that goes away before the end is noticed in both cases, and the server stops its answer.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from sim.api.answer import Answer, Answerer, RefusedError
from sim.api.bodies import StreamOptions
from sim.api.replies import Form, Json, error, usage
from sim.api.shown_text import ShownText
from sim.api.text import Texts

_DONE = "data: [DONE]\n\n"
_CLIENT_HAS_GONE = 499


async def whole(
    request: Request, server: Answerer, texts: Texts, answer: Answer, form: Form
) -> Response:
    """Wait for the end of an answer, and send it."""
    if not await _comes(request, _end(answer)):
        server.cancel(answer)
        return Response(status_code=_CLIENT_HAS_GONE)
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
    if not await _comes(request, answer.begins()):
        server.cancel(answer)
        return Response(status_code=_CLIENT_HAS_GONE)
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


async def _comes(request: Request, awaited: Coroutine[None, None, None]) -> bool:
    """Wait for something, as long as the client is there; returns whether it has come."""
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
