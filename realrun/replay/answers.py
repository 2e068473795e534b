"""One request to a server, and the times of its tokens."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, Field, ValidationError

from sim.core.errors import printable_line

_DATA = b"data:"
_MAX_REASON = 200
# What a connection or a server may do wrong while it is read.
CONNECTION_ERRORS = (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError)
_Count = Annotated[int, Field(ge=0, le=1 << 30)]


class _Details(BaseModel):
    cached_tokens: _Count | None = None


class _Usage(BaseModel):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Choice(BaseModel):
    text: str | None = None


class AnswerChunk(BaseModel):
    """An event of a stream, as far as it is read here."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


@dataclass(slots=True)
class Received:
    """What a client received. Times are in ns on the run's clock.

    Attributes:
        rid: the request's name in the workload.
        sent_ns: when the client sent it.
        max_tokens: how many tokens it asked for.
        token_ns: when each token arrived; tokens that arrived together have one time.
        end_ns: when the answer was complete; None: it never was.
        prompt_tokens, cached_tokens: as the server counts them; None: it does not say.
        failure: why it has no complete answer; empty: it has one.
    """

    rid: str
    sent_ns: int
    max_tokens: int
    token_ns: list[int] = field(default_factory=list)
    end_ns: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    failure: str = ""

    def take(self, chunk: AnswerChunk, now_ns: int) -> None:
        """Note a chunk of the stream. A chunk without a count of tokens is one token.

        Raises:
            ValueError: the answer has more tokens than were asked for.
        """
        usage = chunk.usage
        num_tokens = len(self.token_ns)
        at_ns = now_ns
        if usage is not None:
            num_tokens = max(usage.completion_tokens or 0, num_tokens)
            if usage.prompt_tokens is not None:
                self.prompt_tokens = usage.prompt_tokens
            details = usage.prompt_tokens_details
            if details is not None and details.cached_tokens is not None:
                self.cached_tokens = details.cached_tokens
            # The last chunk has no tokens of its own: what was not counted came before it.
            if not chunk.choices and self.token_ns:
                at_ns = self.token_ns[-1]
        elif any(choice.text for choice in chunk.choices or ()):
            num_tokens += 1
        if num_tokens > self.max_tokens:
            raise ValueError(f"the answer has more than the {self.max_tokens} tokens asked for")
        self.token_ns += [at_ns] * (num_tokens - len(self.token_ns))


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    body: dict[str, Any],
    received: Received,
    now_ns: Callable[[], int],
    token_timeout_s: float,
) -> None:
    """Send a request, and note its tokens until the answer has ended or no token comes any more."""
    timeout = asyncio.timeout(token_timeout_s)

    def wait_again() -> None:
        timeout.reschedule(asyncio.get_running_loop().time() + token_timeout_s)

    try:
        async with timeout:
            await _ask(session, url, body, received, now_ns, wait_again)
    except ValidationError:
        received.failure = "the server sent an event that is no chunk of a completion"
    except (*CONNECTION_ERRORS, ValueError) as problem:
        waited = f"no token came for {token_timeout_s:g} s"
        received.failure = waited if timeout.expired() else said(problem)


async def _ask(
    session: aiohttp.ClientSession,
    url: str,
    body: dict[str, Any],
    received: Received,
    now_ns: Callable[[], int],
    token_came: Callable[[], None],
) -> None:
    # A redirected POST would be sent as a GET.
    async with session.post(url, json=body, allow_redirects=False) as response:
        if response.status != 200:
            received.failure = await refusal(response)
            return
        async for line in response.content:
            for chunk in _chunks(line):
                if chunk.error is not None:
                    reason = json.dumps(chunk.error, ensure_ascii=False)
                    received.failure = _shown(f"the server said {reason}")
                    return
                num_tokens = len(received.token_ns)
                received.take(chunk, now_ns())
                if len(received.token_ns) > num_tokens:
                    token_came()
    received.end_ns = now_ns()
    if not received.token_ns:
        received.failure = "the answer has no token"


def said(problem: BaseException) -> str:
    """What went wrong with a connection, for a message."""
    if isinstance(problem, TimeoutError):
        return "it took too long"
    if isinstance(problem, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
        return "the connection ended before the answer did"
    if isinstance(problem, aiohttp.InvalidURL):
        return "the URL is not valid"
    return _shown(str(problem) or type(problem).__name__)


async def refusal(response: aiohttp.ClientResponse) -> str:
    """Why a response is no answer: its status, and where it points or what it says."""
    status = f"status {response.status}"
    if "Location" in response.headers:
        return _shown(f"{status}, a redirect to {response.headers['Location']}")
    text = (await response.content.read(1 << 16)).decode(errors="replace")
    return _shown(f"{status}: {_reason(text)}") if text.strip() else status


def _shown(text: str) -> str:
    return printable_line(text, _MAX_REASON)


def _chunks(line: bytes) -> Iterator[AnswerChunk]:
    line = line.strip()
    if not line.startswith(_DATA):
        return
    text = line.removeprefix(_DATA).strip()
    if text != b"[DONE]":
        yield AnswerChunk.model_validate_json(text)


def _reason(text: str) -> str:
    try:
        error = json.loads(text)
        return str(error.get("error", error).get("message", text))
    except (ValueError, AttributeError, RecursionError):
        return text
