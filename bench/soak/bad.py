"""Clients as they should not be: those that go away, are slow, or send what is no request."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

_LONG = {"prompt": [7] * 300, "max_tokens": 10_000, "ignore_eos": True, "stream": True}
# The longest that a server may keep a slow client, in s, and some more.
_KEPT_S = 90


def _post(body: bytes, *headers: str, path: str = "/v1/completions", length: int = -1) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: soak", "Content-Type: application/json", *headers]
    head.append(f"Content-Length: {len(body) if length < 0 else length}")
    return "\r\n".join([*head, "", ""]).encode() + body


def _asking(**body: object) -> bytes:
    return _post(json.dumps(body).encode())


_WRONG = (
    _post(b"{"),
    _post(b"\xff\xfe\x00"),
    _post(b"[" * 100_000),
    _post(b'{"prompt": [' + b"1," * 500_000 + b"1]}"),
    _post(b'{"prompt": "' + b"ab" * 400_000 + b'"}'),
    _post(b" " * (4 << 20)),
    _post(b'{"prompt": "a", "max_tokens": 1e999}'),
    _post(b"{}", path="/v9/none"),
    _post(b"{}", "Origin: http://evil.example"),
    _post(b"no chunk\r\n", "Transfer-Encoding: chunked"),
    _post(b"{}", "Expect: 100-continue"),
    _asking(prompt=[2**70]),
    _asking(prompt="a", n=4),
    _asking(prompt="a", max_tokens=10**9),
    _asking(messages=[]),
    _asking(prompt="a" * 200_000),
    b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: soak\r\n\r\n" * 50,
    b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n",
    b"\x00" * 100_000,
)


@asynccontextmanager
async def _connected(
    port: int, data: bytes
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which something was sent; it is aborted at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        yield reader, writer
    finally:
        writer.transport.abort()


async def _goes_away(port: int, number: int) -> str:
    """Before the first token, after it, or after some."""
    async with _connected(port, _asking(**_LONG)) as (reader, _):
        for _ in range(number % 3 * 10):
            await reader.readuntil(b"data: ")
    return "gone"


async def _sends_slow_headers(port: int, _: int) -> str:
    async with _connected(port, b"GET /health HTTP/1.1\r\nX: ") as (reader, writer):
        return await _drips(reader, writer)


async def _sends_a_slow_body(port: int, _: int) -> str:
    async with _connected(port, _post(b'{"prompt": "', length=1000)) as (reader, writer):
        return await _drips(reader, writer)


async def _drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    ends = asyncio.ensure_future(reader.read())
    while not ends.done():
        writer.write(b"a")
        await asyncio.wait([ends], timeout=1)
    return _status(ends.result()) if ends.exception() is None else "closed"


async def _reads_nothing(port: int, _: int) -> str:
    """Asks for more than the system buffers, until the server gives up."""
    many = b"GET /metrics HTTP/1.1\r\nHost: soak\r\n\r\n" * 5000
    async with _connected(port, many) as (_reader, writer):
        while not writer.is_closing():
            await asyncio.sleep(1)
            writer.write(b"\r\n")
    return "closed"


async def _sends_nonsense(port: int, number: int) -> str:
    async with _connected(port, _WRONG[number % len(_WRONG)]) as (reader, _):
        return _status(await reader.readline())


def _status(reply: bytes) -> str:
    return reply[9:12].decode("ascii", "replace") if reply.startswith(b"HTTP/1.1 ") else "closed"


Bad = Callable[[int, int], Awaitable[str]]
# How many there are of each kind, and how long each waits before the next connection, in s.
KINDS: dict[str, tuple[Bad, int, float]] = {
    "goes away": (_goes_away, 4, 0.5),
    "slow headers": (_sends_slow_headers, 20, 0.1),
    "slow body": (_sends_a_slow_body, 20, 0.1),
    "reads nothing": (_reads_nothing, 2, 1.0),
    "malformed": (_sends_nonsense, 2, 0.25),
}


async def client(kind: str, port: int, seen: Counter[tuple[str, str]]) -> None:
    """Connect again and again, until cancelled; count how each connection ended."""
    connect, _, pause_s = KINDS[kind]
    for number in count():
        try:
            async with asyncio.timeout(_KEPT_S):
                ended = await connect(port, number)
        except TimeoutError:
            ended = "kept too long"
        except (OSError, asyncio.IncompleteReadError):
            ended = "closed"
        seen[kind, ended] += 1
        await asyncio.sleep(pause_s)
