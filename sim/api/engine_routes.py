"""What SGLang's and vLLM's servers offer beside OpenAI's interface, as far as clients ask for it.

SGLang 0.5.23 (entrypoints/http_server.py): `/server_info`, `/model_info` and their older names with
`get_`, `/health_generate`, `/flush_cache`. vLLM 0.33.0 (entrypoints/serve): `/version`, `/ping`,
`/tokenize`, `/detokenize`, `/reset_prefix_cache`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sim.api.bodies import MAX_TOKEN_ID, Message, read_body
from sim.api.replies import error
from sim.api.text import Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server says of itself.

    Attributes:
        model: the model's name.
        max_tokens: tokens of the context: most of a prompt and its answer; None: not known.
        pool_tokens: tokens of the KV pool; None: not known.
        checks_model: a request that names another model is refused.
        version: the version of its software.
        tokenizer: where a client finds the tokenizer, as the server was told; None: nowhere.
        settings: the settings that it was started with.
    """

    model: str
    max_tokens: int | None = None
    pool_tokens: int | None = None
    checks_model: bool = False
    version: str = ""
    tokenizer: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


class _TokenizeBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    prompt: str | None = None
    messages: list[Message] | None = None

    @model_validator(mode="after")
    def _has_one(self) -> "_TokenizeBody":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("one of prompt and messages is required")
        return self


class _DetokenizeBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    tokens: list[int] = Field(max_length=1 << 20)

    @model_validator(mode="after")
    def _are_ids(self) -> "_DetokenizeBody":
        if not all(0 <= token <= MAX_TOKEN_ID for token in self.tokens):
            raise ValueError("token ids must be at least 0 and below 2**62")
        return self


class EngineRoutes:
    """The routes of one server."""

    def __init__(self, texts: Texts, info: ServerInfo, flush: Callable[[], bool] | None) -> None:
        """`flush` empties the prefix cache, and returns whether it did; None: it cannot."""
        self._texts, self._info, self._flush_cache = texts, info, flush

    def routes(self) -> list[Route]:
        empties = ["GET", "POST"]
        return [
            *[Route(f"/{get}server_info", self._server_info) for get in ("", "get_")],
            *[Route(f"/{get}model_info", self._model_info) for get in ("", "get_")],
            Route("/health_generate", _ok),
            Route("/ping", _ok, methods=empties),
            Route("/version", self._version),
            Route("/flush_cache", self._flush, methods=empties),
            Route("/reset_prefix_cache", self._flush, methods=["POST"]),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/detokenize", self._detokenize, methods=["POST"]),
        ]

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

    async def _flush(self, _: Request) -> Response:
        if self._flush_cache is None:
            return JSONResponse(error(501, "this server cannot flush its cache"), 501)
        if self._flush_cache():
            return Response("Cache flushed.\n")
        return JSONResponse(error(400, "the cache is not flushed: requests wait or run"), 400)

    async def _tokenize(self, request: Request) -> Response:
        body = await read_body(request, _TokenizeBody)
        if body.prompt is not None:
            tokens = self._texts.tokens(body.prompt)
        else:
            tokens = self._texts.conversation(
                [(message.role, message.text) for message in body.messages or ()]
            )
        about = {"count": len(tokens), "max_model_len": self._info.max_tokens}
        return JSONResponse(about | {"tokens": tokens.tolist()})

    async def _detokenize(self, request: Request) -> Response:
        body = await read_body(request, _DetokenizeBody)
        stream = self._texts.stream()
        return JSONResponse({"prompt": stream.add(body.tokens) + stream.end()})


async def _ok(_: Request) -> Response:
    return Response(status_code=200)
