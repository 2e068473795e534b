"""Replays a workload against a server, and turns what came back into a measured run."""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

from realrun.replay.answers import Received, ask
from realrun.replay.sender import ReplaySender
from realrun.replay.server_facts import AskedServer, ask_server, note_metrics
from sim.core.tokens import TokenIds
from sim.workload.results.model import ImportedRequest, PromptIds
from sim.workload.workload import ScriptedRequest, Workload

# Longest line of a stream that is read.
_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Where and how to send.

    Attributes:
        url: the server, without `/v1`.
        model: the model's name on the server; None: the first that it lists.
        vocab_size: prompts have token ids below this number.
        token_timeout_s: a request that gets no token for so long has failed.
    """

    url: str
    model: str | None = None
    vocab_size: int = 32_000
    token_timeout_s: float = 600


@dataclass(frozen=True, slots=True)
class Replayed:
    """A finished replay.

    Attributes:
        server: what the server said of itself.
        requests: what happened to each request, in order of arrival.
        token_ns: when each token of each request arrived, in the same order.
        num_cached: prompt tokens that the server found in its cache; None: it does not say.
        num_interrupted: requests that were under way at Ctrl-C; None: there was none.
    """

    server: AskedServer
    requests: list[ImportedRequest]
    token_ns: list[list[int]]
    num_cached: int | None
    num_interrupted: int | None


async def replay(workload: Workload, options: ReplayOptions) -> Replayed:
    """Send a workload on time, and wait for all answers, or until the task is cancelled.

    Cancelled as Ctrl-C does it, it ends the requests that are under way, which have failed then.

    Raises:
        InputError: there is no server, or it names no model.
    """
    url = options.url.rstrip("/").removesuffix("/v1")
    connector = aiohttp.TCPConnector(limit=0)
    endless = aiohttp.ClientTimeout(total=None)
    all_received: list[tuple[ScriptedRequest, TokenIds, Received]] = []
    under_way: dict[str, Received] = {}
    async with aiohttp.ClientSession(
        connector=connector, timeout=endless, read_bufsize=_LINE_BYTES, headers=_headers()
    ) as session:
        server = await ask_server(session, url, options.model)

        async def send(request: ScriptedRequest) -> None:
            prompt = request.spec.prompt.token_ids() % options.vocab_size
            body = {
                "model": server.model,
                "prompt": prompt.tolist(),
                "max_tokens": request.script.num_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }
            if request.spec.priority is not None:
                body["priority"] = request.spec.priority
            received = Received(request.spec.rid, sender.now_ns(), request.script.num_tokens)
            all_received.append((request, prompt, received))
            under_way[received.rid] = received
            address, limit_s = f"{url}/v1/completions", options.token_timeout_s
            try:
                await ask(session, address, body, received, sender.now_ns, limit_s)
            finally:
                del under_way[received.rid]

        sender = ReplaySender(workload, send)
        num_interrupted = await _until_cancelled(sender.run(), under_way)
        if num_interrupted is None:
            await note_metrics(session, url, server, "after")
    all_received.sort(key=lambda row: row[2].sent_ns)
    cached = [row[2].cached_tokens for row in all_received]
    return Replayed(
        server,
        [_measured(request, prompt, received) for request, prompt, received in all_received],
        [received.token_ns for _, _, received in all_received],
        sum(count for count in cached if count is not None)
        if any(count is not None for count in cached)
        else None,
        num_interrupted,
    )


async def _until_cancelled(
    sends: Coroutine[Any, Any, None], under_way: Mapping[str, Received]
) -> int | None:
    """Send until all is over, or until this task is cancelled.

    Returns:
        How many requests were under way when it was cancelled; None: it was not.
    """
    sending = asyncio.ensure_future(sends)
    try:
        await asyncio.wait([sending])
    except asyncio.CancelledError:
        interrupted = list(under_way.values())
        for received in interrupted:
            received.failure = "interrupted"
        sending.cancel()
        await asyncio.wait([sending])
        return len(interrupted)
    sending.result()
    return None


def _headers() -> dict[str, str]:
    """The key of a server that wants one, from where OpenAI's own client takes it."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    return {"Authorization": f"Bearer {key}"} if key else {}


def _measured(request: ScriptedRequest, prompt: TokenIds, received: Received) -> ImportedRequest:
    has_ended = received.end_ns is not None and not received.failure
    times_ns = received.token_ns
    return ImportedRequest(
        rid=received.rid,
        arrival_ns=received.sent_ns,
        first_token_ns=times_ns[0] if times_ns else None,
        finish_ns=times_ns[-1] if has_ended else None,
        prompt_tokens=received.prompt_tokens or len(prompt),
        output_tokens=len(times_ns) or None,
        failure="" if has_ended else received.failure or "its client gave up",
        prompt_ids=PromptIds(prompt.astype(np.int64)),
        max_new_tokens=request.script.num_tokens,
        ignore_eos=True,
        priority=request.spec.priority,
    )
