"""One request to a server, and the times of its tokens."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from sim.core.messages import shorten

_DATA = b"data:"


@dataclass(slots=True)
class Received:
    """What a client received. Times are in ns on the run's clock.

    Attributes:
        rid: the request's name in the workload.
        sent_ns: when the client sent it.
        token_ns: when each token arrived; tokens that arrived together have one time.
        end_ns: when the answer was complete; None: it never was.
        prompt_tokens, cached_tokens: as the server counts them; None: it does not say.
        failure: why it has no complete answer; empty: it has one.
    """

    rid: str
    sent_ns: int
    token_ns: list[int] = field(default_factory=list)
    end_ns: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    failure: str = ""

    def take(self, reply: dict[str, Any], now_ns: int) -> None:
        """Note a chunk of the stream. A chunk without a count of tokens is one token."""
        usage = reply.get("usage")
        if isinstance(usage, dict):
            num_tokens = int(usage.get("completion_tokens") or 0)
            self.prompt_tokens = usage.get("prompt_tokens", self.prompt_tokens)
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict) and details.get("cached_tokens") is not None:
                self.cached_tokens = int(details["cached_tokens"])
            # The last chunk has no tokens of its own: what was not counted came before it.
            at_ns = now_ns if reply.get("choices") or not self.token_ns else self.token_ns[-1]
            self.token_ns += [at_ns] * (num_tokens - len(self.token_ns))
        elif any(choice.get("text") for choice in reply.get("choices") or ()):
            self.token_ns.append(now_ns)


async def ask(
    session: aiohttp.ClientSession,
    url: str,
    body: dict[str, Any],
    received: Received,
    now_ns: Callable[[], int],
) -> None:
    """Send a request, and note its tokens until the answer has ended."""
    try:
        async with session.post(url, json=body) as response:
            if response.status != 200:
                text = await response.text(errors="replace")
                received.failure = f"status {response.status}: {shorten(_reason(text))}"
                return
            async for line in response.content:
                for reply in _replies(line):
                    if "error" in reply:
                        received.failure = shorten(f"the server said {json.dumps(reply['error'])}")
                        return
                    received.take(reply, now_ns())
        received.end_ns = now_ns()
        if not received.token_ns:
            received.failure = "the answer has no token"
    except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as problem:
        received.failure = shorten(f"{type(problem).__name__}: {problem}")


def _replies(line: bytes) -> Iterator[dict[str, Any]]:
    line = line.strip()
    if not line.startswith(_DATA):
        return
    text = line.removeprefix(_DATA).strip()
    if text != b"[DONE]":
        reply = json.loads(text)
        if not isinstance(reply, dict):
            raise ValueError("the server sent an event that is no JSON object")
        yield reply


def _reason(text: str) -> str:
    try:
        error = json.loads(text)
        return str(error.get("error", error).get("message", text))
    except (ValueError, AttributeError):
        return text
