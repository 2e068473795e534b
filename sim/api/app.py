"""The web application: OpenAI's completions and chat, health, models and metrics."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sim.api.answer import Asked, RefusedError, Server
from sim.api.bodies import Body, ChatBody, CompletionBody, StreamOptions
from sim.api.metrics import Metrics
from sim.api.replies import ChatForm, CompletionForm, Form, error
from sim.api.respond import stream, whole
from sim.api.text import BadTextError, Texts
from sim.core.messages import shorten

B = TypeVar("B", bound=BaseModel)


class BadBodyError(Exception):
    """The body of a request is not what it should be."""


class Api:
    """The routes of one server."""

    def __init__(self, server: Server, texts: Texts, metrics: Metrics, model: str) -> None:
        self._server, self._texts, self._metrics, self._model = server, texts, metrics, model

    def app(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/metrics", self._show_metrics),
                Route("/v1/models", self._models),
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
            ],
            exception_handlers={
                BadBodyError: _bad_request,
                BadTextError: _bad_request,
                RefusedError: _refused,
            },
        )

    async def _health(self, _: Request) -> Response:
        return Response(status_code=200)

    async def _show_metrics(self, _: Request) -> Response:
        return Response(self._metrics.text(), media_type=self._metrics.media_type)

    async def _models(self, _: Request) -> Response:
        model = {"id": self._model, "object": "model", "owned_by": "servetwin"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _completions(self, request: Request) -> Response:
        body = await _read(request, CompletionBody)
        if isinstance(body.prompt, str):
            prompt = self._texts.tokens(body.prompt)
        else:
            prompt = np.array(body.prompt, dtype=np.int64)
        asked = Asked(prompt, body.max_tokens, body.ignore_eos, body.priority, body.sampling)
        return await self._answer(request, body, asked, CompletionForm)

    async def _chat(self, request: Request) -> Response:
        body = await _read(request, ChatBody)
        prompt = self._texts.conversation(body.turns)
        asked = Asked(prompt, body.most_tokens, body.ignore_eos, body.priority, body.sampling)
        return await self._answer(request, body, asked, ChatForm)

    async def _answer(
        self, request: Request, body: Body, asked: Asked, make_form: Callable[[str, str], Form]
    ) -> Response:
        answer = self._server.ask(asked)
        form = make_form(answer.rid, self._model)
        if body.stream:
            options = body.stream_options or StreamOptions()
            return await stream(self._server, self._texts, answer, form, options)
        return await whole(request, self._server, self._texts, answer, form)


async def _read(request: Request, kind: type[B]) -> B:
    """The body of a request.

    Raises:
        BadBodyError: it is no JSON, or something in it is wrong.
    """
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as wrong:
        first = wrong.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadBodyError(shorten(f"{place}: {first['msg']}" if place else first["msg"])) from None


async def _bad_request(_: Request, problem: Exception) -> Response:
    return JSONResponse(error(400, str(problem)), 400)


async def _refused(_: Request, problem: Exception) -> Response:
    status = problem.status if isinstance(problem, RefusedError) else 500
    return JSONResponse(error(status, str(problem)), status)
