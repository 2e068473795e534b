"""The HTTP server: its routes, and the loop that serves them until Ctrl-C.

The routes are OpenAI's, and those of SGLang's and vLLM's servers that clients use. SGLang 0.5.23
(entrypoints/http_server.py): `/generate`, `/server_info`, `/model_info` and the older names of
these two with `get_`, `/health_generate`, `/flush_cache`. vLLM 0.33.0 (entrypoints/serve):
`/version`, `/ping`, `/tokenize`, `/detokenize`, `/reset_prefix_cache`. Both have `/health` and
`/metrics`.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sim.api.answer import Answerer, Asked, BadTextError, RefusedError, Texts
from sim.api.bodies import (
    BODY_LIMIT_S,
    BadBodyError,
    Body,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    GenerateBody,
    StreamOptions,
    TokenizeBody,
    read_body,
)
from sim.api.metrics import Metrics
from sim.api.replies import ChatForm, CompletionForm, Form, GenerateForm, Json, error, stream, whole
from sim.core.errors import InputError
from sim.core.messages import shorten
from sim.core.tokens import TokenIds

# What SGLang generates for `/generate` if a client does not say (sampling_params.py).
_SGLANG_TOKENS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server says of itself.

    Attributes:
        model: name of the served model.
        max_tokens: the context length, for a prompt and its output together; None: not known.
        pool_tokens: tokens of the KV pool; None: not known.
        checks_model: whether a request that names another model is refused.
        version: that of the engine; empty: not known.
        tokenizer: where a client finds the tokenizer, as the server was told; None: nowhere.
        settings: what the server was started with; `/server_info` shows it.
    """

    model: str
    max_tokens: int | None = None
    pool_tokens: int | None = None
    checks_model: bool = False
    version: str = ""
    tokenizer: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


class Api:
    """The routes of one server."""

    def __init__(
        self,
        server: Answerer,
        texts: Texts,
        metrics: Metrics,
        info: ServerInfo,
        flush: Callable[[], bool] | None = None,
        body_limit_s: float = BODY_LIMIT_S,
    ) -> None:
        """`server` answers requests, `texts` turns text into tokens and back.

        `flush` empties the prefix cache, and returns whether it did; None: the server cannot. A
        request whose body takes longer than `body_limit_s` to arrive is answered with status 408.
        """
        self._body_limit_s = body_limit_s
        self._server, self._texts, self._metrics = server, texts, metrics
        self._info, self._flush = info, flush
        self._started_s = int(time.time())

    def app(self) -> Starlette:
        """The web application with these routes."""
        get_or_post = ["GET", "POST"]
        app = Starlette(
            routes=[
                Route("/health", _ok),
                Route("/health_generate", _ok),
                Route("/ping", _ok, methods=get_or_post),
                Route("/metrics", self._show_metrics),
                Route("/v1/models", self._models),
                Route("/v1/models/{name:path}", self._model),
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/generate", self._generate, methods=["POST", "PUT"]),
                *[Route(f"/{prefix}server_info", self._server_info) for prefix in ("", "get_")],
                *[Route(f"/{prefix}model_info", self._model_info) for prefix in ("", "get_")],
                Route("/version", self._version),
                Route("/flush_cache", self._empty_cache, methods=get_or_post),
                Route("/reset_prefix_cache", self._empty_cache, methods=["POST"]),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                Route("/detokenize", self._detokenize, methods=["POST"]),
            ],
            exception_handlers={
                BadBodyError: _bad_request,
                BadTextError: _bad_request,
                RefusedError: _refused,
                HTTPException: _not_offered,
                ClientDisconnect: _gone,
                Exception: _failed,
            },
        )
        app.state.body_limit_s = self._body_limit_s
        return app

    async def _show_metrics(self, _: Request) -> Response:
        return Response(self._metrics.text(), media_type=self._metrics.media_type)

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def _model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return JSONResponse(self._card())

    def _check_model(self, name: str) -> None:
        if name != self._info.model:
            raise RefusedError(404, f"the model {shorten(repr(name))} does not exist")

    def _card(self) -> Json:
        name = self._info.model
        return {
            "id": name,
            "object": "model",
            "created": self._started_s,
            "owned_by": "servetwin",
            "root": self._info.tokenizer or name,
            "parent": None,
            "max_model_len": self._info.max_tokens,
        }

    async def _completions(self, request: Request) -> Response:
        body = await read_body(request, CompletionBody)
        if isinstance(body.prompt, str):
            prompt = self._texts.tokens(body.prompt)
        else:
            prompt = np.array(body.prompt, dtype=np.int64)
        self._check_length(prompt, body.max_tokens)
        asked = _asked(prompt, body, body.max_tokens, body.min_tokens)
        return await self._answer(request, body, asked, CompletionForm)

    async def _chat(self, request: Request) -> Response:
        body = await read_body(request, ChatBody)
        prompt = self._texts.conversation(body.turns)
        self._check_length(prompt, body.most_tokens)
        asked = _asked(prompt, body, body.most_tokens, body.min_tokens)
        return await self._answer(request, body, asked, ChatForm)

    async def _generate(self, request: Request) -> Response:
        body = await read_body(request, GenerateBody)
        if body.text:
            prompt = self._texts.tokens(body.text)
        else:
            prompt = np.array(body.input_ids, dtype=np.int64)
        params = body.sampling_params.model_copy(
            update={"stream": body.stream, "priority": body.priority}
        )
        most = params.max_new_tokens
        if most is None:
            params = params.model_copy(update={"max_new_tokens": _SGLANG_TOKENS})
        self._check_length(prompt, most)
        asked = _asked(prompt, params, params.max_new_tokens, params.min_new_tokens)
        return await self._answer(request, params, asked, GenerateForm)

    async def _server_info(self, _: Request) -> Response:
        info = self._info
        about = {
            "model_path": info.model,
            "version": info.version,
            "max_total_num_tokens": info.pool_tokens,
            "internal_states": [{}],
            **info.settings,
        }
        return JSONResponse(about)

    async def _model_info(self, _: Request) -> Response:
        info = self._info
        where = info.tokenizer or info.model
        return JSONResponse(
            {"model_path": info.model, "tokenizer_path": where, "is_generation": True}
        )

    async def _version(self, _: Request) -> Response:
        return JSONResponse({"version": self._info.version})

    async def _empty_cache(self, _: Request) -> Response:
        if self._flush is None:
            return JSONResponse(error(501, "this server cannot flush its cache"), 501)
        if self._flush():
            return Response("Cache flushed.\n")
        return JSONResponse(error(400, "the cache is not flushed: requests wait or run"), 400)

    async def _tokenize(self, request: Request) -> Response:
        body = await read_body(request, TokenizeBody)
        if body.prompt is not None:
            tokens = self._texts.tokens(body.prompt)
        else:
            tokens = self._texts.conversation(
                [(message.role, message.text) for message in body.messages or ()]
            )
        about = {"count": len(tokens), "max_model_len": self._info.max_tokens}
        return JSONResponse(about | {"tokens": tokens.tolist()})

    async def _detokenize(self, request: Request) -> Response:
        body = await read_body(request, DetokenizeBody)
        stream = self._texts.stream()
        return JSONResponse({"prompt": stream.add(body.tokens) + stream.end()})

    async def _answer(
        self, request: Request, body: Body, asked: Asked, make_form: Callable[[str, str], Form]
    ) -> Response:
        if body.model and self._info.checks_model:
            self._check_model(body.model)
        answer = self._server.ask(asked)
        form = make_form(answer.rid, self._info.model)
        if body.stream:
            options = body.stream_options or StreamOptions()
            return await stream(request, self._server, self._texts, answer, form, options)
        return await whole(request, self._server, self._texts, answer, form)

    def _check_length(self, prompt: TokenIds, most: int | None) -> None:
        """Refuse more tokens than the context has, as both engines do.

        SGLang 0.5.23: `_validate_one_request` in managers/tokenizer_manager.py; vLLM 0.33.0:
        renderers/params.py.
        """
        context = self._info.max_tokens
        if most is not None and context is not None and len(prompt) + most > context:
            raise RefusedError(
                400,
                f"the context has {context} tokens: too few for a prompt of {len(prompt)} and"
                f" {most} of output",
            )


def _asked(prompt: TokenIds, body: Body, most: int | None, least: int) -> Asked:
    if most is not None and least > most:
        raise RefusedError(400, f"at least {least} tokens are asked for, but at most {most}")
    return Asked(prompt, most, body.ignore_eos, body.priority, body.sampling, least)


async def _ok(_: Request) -> Response:
    return Response(status_code=200)


async def _bad_request(_: Request, problem: Exception) -> Response:
    return JSONResponse(error(400, str(problem)), 400)


async def _not_offered(_: Request, problem: Exception) -> Response:
    """An unknown address, a wrong method, or a body that is too long or too slow."""
    known = problem if isinstance(problem, HTTPException) else HTTPException(500)
    status = known.status_code
    return JSONResponse(error(status, known.detail), status, known.headers)


async def _gone(_: Request, _problem: Exception) -> Response:
    return Response(status_code=499)


async def _failed(_: Request, _problem: Exception) -> Response:
    return JSONResponse(error(500, "the server failed"), 500)


async def _refused(_: Request, problem: Exception) -> Response:
    status = problem.status if isinstance(problem, RefusedError) else 500
    return JSONResponse(error(status, str(problem)), status)


# Connections that may wait to be accepted.
_BACKLOG = 4096
# How long answers that are under way may go on after Ctrl-C.
_GRACE_S = 30


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens for clients; with port 0, on a free port.

    Raises:
        InputError: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        # Its connections inherit this. Without it a reply's second packet waits for the first one's
        # acknowledgement, up to 40 ms. asyncio sets it only where a socket names the protocol TCP,
        # which this one does not.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        # The error's own text repeats the address. A failed look-up of a name has no error number
        # of the system, but a text.
        number = error.errno or 0
        known = os.strerror(number) if number > 0 else error.strerror
        raise InputError(f"cannot listen on {host}:{port}: {known}") from None
    return listener


def serve(
    app: Starlette,
    listener: socket.socket,
    beside: Callable[[], Awaitable[None]],
    started: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Serve an application until Ctrl-C, or until `beside`, which runs meanwhile, returns or fails.

    From then on no more requests are taken. `beside` is cancelled when all answers have ended, or
    after half a minute. `started` is called first, with a function that ends the server as Ctrl-C
    does, from any thread.

    Raises:
        Exception: what `beside` raised.
    """
    asyncio.run(_serve(app, listener, beside, started))


def _is_no_cancelled_answer(record: logging.LogRecord) -> bool:
    """False for the traceback of an answer that Ctrl-C cut off; one line counts all of them."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


async def _serve(
    app: Starlette,
    listener: socket.socket,
    beside: Callable[[], Awaitable[None]],
    started: Callable[[Callable[[], None]], None] | None,
) -> None:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_S,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancelled_answer)
    server = uvicorn.Server(config)
    if started is not None:
        started(lambda: setattr(server, "should_exit", True))
    work = asyncio.ensure_future(beside())
    work.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        await server.serve(sockets=[listener])
    finally:
        work.cancel()
        results = await asyncio.gather(work, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]
