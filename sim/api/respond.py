"""Sends an answer to a client: as a stream of server-sent events, or whole.

A client that goes away before the end is noticed in both cases, and the server stops its answer.
"""

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from sim.api.answer import Answer, Server
from sim.api.bodies import StreamOptions
from sim.api.replies import Form, Json, error, usage
from sim.api.text import Texts

_DONE = "data: [DONE]\n\n"
_CLIENT_HAS_GONE = 499


async def whole(
    request: Request, server: Server, texts: Texts, answer: Answer, form: Form
) -> Response:
    """Wait for the end of an answer, and send it."""
    ends = asyncio.ensure_future(_end(answer))
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({ends, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not ends.done():
            server.cancel(answer)
            return Response(status_code=_CLIENT_HAS_GONE)
    finally:
        ends.cancel()
        gone.cancel()
    if answer.finish_reason == "abort":
        return _aborted()
    text = texts.text(server.output_ids(answer, 0, answer.num_tokens))
    return JSONResponse(form.whole(text, answer))


async def stream(
    server: Server, texts: Texts, answer: Answer, form: Form, options: StreamOptions
) -> Response:
    """Send an answer token by token.

    Its first token is waited for, so that a request that gets none is answered with an error.
    """
    updates = answer.updates()
    first = await anext(updates, None)
    if first is None and answer.finish_reason == "abort":
        return _aborted()

    async def events() -> AsyncIterator[str]:
        try:
            part = first
            while part is not None:
                begin, end = part
                text = texts.text(server.output_ids(answer, begin, end))
                ends = answer.finish_reason is not None and end == answer.num_tokens
                chunk = form.chunk(text, answer, is_first=begin == 0, ends=ends)
                if options.continuous_usage_stats:
                    chunk["usage"] = usage(answer)
                yield _event(chunk)
                part = None if ends else await anext(updates, None)
                if part is None and not ends:
                    # The answer has ended after its last token was sent.
                    yield _event(form.chunk("", answer, is_first=False, ends=True))
            if options.include_usage:
                yield _event(form.usage_chunk(answer))
            yield _DONE
        finally:
            if answer.finish_reason is None:
                server.cancel(answer)

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(reply: Json) -> str:
    return f"data: {json.dumps(reply, separators=(',', ':'))}\n\n"


def _aborted() -> Response:
    reason = "the server could not serve the request"
    return JSONResponse(error(503, reason), 503)


async def _end(answer: Answer) -> None:
    async for _ in answer.updates():
        pass


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
