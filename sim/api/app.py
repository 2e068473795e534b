"""The routes of the HTTP server.

They are OpenAI's, and those of SGLang's and vLLM's servers that clients use. SGLang 0.5.23
(entrypoints/http_server.py): `/generate`, `/server_info`, `/model_info` and the older names of
these two with `get_`, `/health_generate`, `/flush_cache`. vLLM 0.33.0 (entrypoints/serve):
`/version`, `/ping`, `/tokenize`, `/detokenize`, `/reset_prefix_cache`. Both have `/health` and
`/metrics`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sim.api.address import Address
from sim.api.answer import Answerer, Asked, BadTextError, RefusedError, Texts
from sim.api.bodies import (
    BODY_LIMIT_S,
    BadBodyError,
    Body,
    BodyReader,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    GenerateBody,
    StreamOptions,
    TokenizeBody,
)
from sim.api.guard import Guard
from sim.api.metrics import Metrics
from sim.api.replies import (
    CLIENT_HAS_GONE,
    ChatForm,
    CompletionForm,
    Form,
    GenerateForm,
    Json,
    error,
    stream,
    whole,
)
from sim.core.errors import shorten
from sim.core.tokens import TokenIds

# What SGLang generates for `/generate` if a client does not say (sampling_params.py).
_SGLANG_TOKENS = 128
P = TypeVar("P", CompletionBody, GenerateBody)


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
        *,
        address: Address | None = None,
        body_limit_s: float = BODY_LIMIT_S,
    ) -> None:
        """`server` answers requests, `texts` turns text into tokens and back.

        `flush` empties the prefix cache, and returns whether it did; None: the server cannot.
        `address` has the hosts and the key that clients must name. A request whose body takes
        longer than `body_limit_s` to arrive is answered with status 408.
        """
        self._address = Address() if address is None else address
        self._bodies = BodyReader(texts, info.max_tokens, body_limit_s)
        self._server, self._texts, self._metrics = server, texts, metrics
        self._info, self._flush = info, flush
        self._started_s = int(time.time())

    def app(self) -> ASGIApp:
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
        return Guard(app, self._address)

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
        body, prompt = await self._bodies.use(request, CompletionBody, _with_prompt)
        self._check_length(prompt, body.max_tokens)
        asked = _asked(prompt, body, body.max_tokens, body.min_tokens)
        return await self._answer(request, body, asked, CompletionForm)

    async def _chat(self, request: Request) -> Response:
        body, prompt = await self._bodies.use(request, ChatBody, _with_conversation)
        self._check_length(prompt, body.most_tokens)
        asked = _asked(prompt, body, body.most_tokens, body.min_tokens)
        return await self._answer(request, body, asked, ChatForm)

    async def _generate(self, request: Request) -> Response:
        body, prompt = await self._bodies.use(request, GenerateBody, _with_prompt)
        params = body.sampling_params.model_copy(
            update={"stream": body.stream, "priority": body.priority}
        )
        self._check_length(prompt, params.max_new_tokens)
        if params.max_new_tokens is None:
            params = params.model_copy(update={"max_new_tokens": _SGLANG_TOKENS})
        asked = _asked(prompt, params, params.max_new_tokens, params.min_new_tokens)
        return await self._answer(request, params, asked, GenerateForm)

    async def _server_info(self, _: Request) -> Response:
        info = self._info
        about = {
            "model_path": info.model,
            "version": info.version,
            "max_total_num_tokens": info.pool_tokens,
            "internal_states": [{}],  # SGLang's benchmark reads values of the first one
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
        def work(body: TokenizeBody, texts: Texts) -> Response:
            if body.prompt is not None:
                tokens = texts.tokens(body.prompt)
            else:
                tokens = texts.conversation(
                    [(message.role, message.text) for message in body.messages or ()]
                )
            about = {"count": len(tokens), "max_model_len": self._info.max_tokens}
            return JSONResponse(about | {"tokens": tokens.tolist()})

        return await self._bodies.use(request, TokenizeBody, work)

    async def _detokenize(self, request: Request) -> Response:
        def work(body: DetokenizeBody, texts: Texts) -> Response:
            stream = texts.stream()
            return JSONResponse({"prompt": stream.add(body.tokens) + stream.end()})

        return await self._bodies.use(request, DetokenizeBody, work)

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

    def _check_length(self, prompt: TokenIds, max_tokens: int | None) -> None:
        """Refuse more tokens than the context has, as both engines do.

        SGLang 0.5.23: `_validate_one_request` in managers/tokenizer_manager.py; vLLM 0.33.0:
        renderers/params.py.
        """
        context = self._info.max_tokens
        if max_tokens is None or context is None:
            return
        if len(prompt) + max_tokens > context:
            raise RefusedError(
                400,
                f"the context has {context} tokens: too few for a prompt of {len(prompt)} and"
                f" {max_tokens} of output",
            )


def _with_prompt(body: P, texts: Texts) -> tuple[P, TokenIds]:
    if isinstance(body.prompt, str):
        return body, texts.tokens(body.prompt)
    return body, np.array(body.prompt, dtype=np.int64)


def _with_conversation(body: ChatBody, texts: Texts) -> tuple[ChatBody, TokenIds]:
    return body, texts.conversation(body.turns)


def _asked(prompt: TokenIds, body: Body, max_tokens: int | None, min_tokens: int) -> Asked:
    if max_tokens is not None and min_tokens > max_tokens:
        reason = f"at least {min_tokens} tokens are asked for, but at most {max_tokens}"
        raise RefusedError(400, reason)
    return Asked(prompt, max_tokens, body.ignore_eos, body.priority, body.sampling, min_tokens)


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
    return Response(status_code=CLIENT_HAS_GONE)


async def _failed(_: Request, _problem: Exception) -> Response:
    return JSONResponse(error(500, "the server failed"), 500)


async def _refused(_: Request, problem: Exception) -> Response:
    status = problem.status if isinstance(problem, RefusedError) else 500
    return JSONResponse(error(status, str(problem)), status)
