"""A server that answers as a script says, whatever is asked: `realrun replay` sends to it.

The script is a file: for each path of the interface, parts that are sent one after the other.
"""

import gzip
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from fuzz.mutate import WORDS, mutated_bytes
from fuzz.typed import typed_tree
from realrun.cli import main as realrun
from sim.core.packed import numbered_lines

URL = "URL"
NUM_REQUESTS = 4
SCRIPT, SCENARIO = "answers.json", "few.yaml"
# A client that keeps a connection open must give up itself; this ends a test of a broken one.
_MAX_S = 30.0
_MOST_SENT = 64 << 20

# A text is sent as bytes 0 to 255. A mapping has `again`, which is sent until the client goes,
# `close` or `reset`, which end the connection, or `hold`, which waits until the client goes.
Part = str | dict[str, Any]
Script = dict[str, list[Part]]


class _Answer(BaseRequestHandler):
    server: "_Server"

    def handle(self) -> None:
        self.request.settimeout(_MAX_S)
        with suppress(OSError):
            path = self._asked()
            for part in self.server.script.get(path, [_head("404 Not Found"), "{}"]):
                if self._sent(part):
                    return
            # Closed in order, so that all that was sent arrives.
            self.request.shutdown(socket.SHUT_WR)
            while self.request.recv(1 << 16):
                pass

    def _asked(self) -> str:
        """The path of the request, which is read whole."""
        received = b""
        while b"\r\n\r\n" not in received:
            if not (part := self.request.recv(1 << 16)):
                return ""
            received += part
        top, _, body = received.partition(b"\r\n\r\n")
        lengths = [line for line in top.lower().split(b"\r\n") if line.startswith(b"content-len")]
        length = int(lengths[0].partition(b":")[2]) if lengths else 0
        while len(body) < length:
            body += self.request.recv(1 << 16)
        return top.split(b" ")[1].decode("latin-1")

    def _sent(self, part: Part) -> bool:
        """Send a part; returns whether it ends the connection."""
        if isinstance(part, str):
            self.request.sendall(part.encode("latin-1", "replace"))
            return False
        if "again" in part:
            text = str(part["again"]).encode("latin-1", "replace")
            for _ in range(_MOST_SENT // max(len(text), 1)):
                self.request.sendall(text)
        if "hold" in part:
            while self.request.recv(1 << 16):
                pass
        if "reset" in part:
            linger = struct.pack("ii", 1, 0)
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        return True


class _Server(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64
    script: Script

    def handle_error(self, *_: object) -> None:
        """What a client did to the connection is no matter."""


@contextmanager
def _scripted(script: Script) -> Iterator[str]:
    """A server with these answers; yields its address."""
    with _Server(("127.0.0.1", 0), _Answer) as server:
        server.script = script
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def against(arguments: Sequence[str]) -> int:
    """`SCRIPT COMMAND...`: run a command of realrun, with the server's address for URL."""
    script, *words = arguments
    read = json.loads(Path(script).read_text(encoding="utf-8"))
    with _scripted(read) as url:
        code = realrun([url if word == URL else word for word in words])
    kept = Path("out/measured.jsonl.gz")
    if code == 0 and (num := sum(1 for _ in numbered_lines(kept))) != NUM_REQUESTS:
        sys.stderr.write(f"internal error: {num} of {NUM_REQUESTS} requests are in {kept}\n")
    return code


# ---- scripts -----------------------------------------------------------------------------------


def _head(status: str = "200 OK", kind: str = "application/json", **more: object) -> str:
    lines = [f"{key.replace('_', '-')}: {value}\r\n" for key, value in more.items()]
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{''.join(lines)}\r\n"


def good_script() -> Script:
    """A server that answers as it should."""
    settings = {"page_size": 16, "max_total_num_tokens": 4096, "version": "0.5.23"}
    usage = {"prompt_tokens": 20, "completion_tokens": 3}
    tokens = [{"choices": [{"index": 0, "text": text}]} for text in "abc"]
    events = [*tokens, {"choices": [], "usage": usage}]
    metrics = '# HELP a b\nvllm:cache_config_info{block_size="16",num_gpu_blocks="99"} 1.0\n'
    return {
        "/v1/models": [_head(), json.dumps({"object": "list", "data": [{"id": "m"}]})],
        "/server_info": [_head(), json.dumps(settings)],
        "/version": [_head(), json.dumps({"version": "0.33.0"})],
        "/metrics": [_head(kind="text/plain"), metrics],
        "/v1/completions": [
            _head(kind="text/event-stream"),
            *(f"data: {json.dumps(event)}\n\n" for event in events),
            "data: [DONE]\n\n",
        ],
    }


def hostile_script(_old: bytes, rng: Random) -> bytes:
    """A script with one to three changes."""
    script = good_script()
    for _ in range(rng.choice((1, 1, 2, 3))):
        # The answers are what is read most.
        path = rng.choice((*script, *["/v1/completions"] * 3))
        parts = script[path]
        if parts:
            rng.choice(_CHANGES)(parts, rng)
    return json.dumps(script).encode()


_STATUS = (
    "204 No Content", "301 Moved", "307 Elsewhere", "400 Bad", "401 No", "404 Not Found",
    "429 Too many", "500 Wrong", "503 Busy", "999 What", "200", "", "-1 x", "100 Continue",
    "101 Switching Protocols", "200 \u00e9\u00ff", "2000 OK", "200 " + "a" * 9_000,
)  # fmt: skip
_HEADERS = (
    "Content-Length: 3", "Content-Length: 99999999", "Content-Length: -1", "Content-Length: x",
    "Content-Length: 5\r\nContent-Length: 7", "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked", "Content-Encoding: gzip", "Content-Encoding: br",
    "Content-Encoding: deflate", "Content-Type: text/plain; charset=utf-999",
    "Content-Type: text/event-stream; charset=utf-16", "Location: http://127.0.0.1:1/x",
    "Location: file:///etc/passwd", "Location: /v1/models", "Location: //\u00ff", "no colon",
    ": nameless", " folded", "X: " + "a" * 9_000, "X: " + "a" * 200_000, "Y: \0", "Z: \u00ff",
    "Set-Cookie: a=b; Domain=..", "Keep-Alive: timeout=999999999999", "Connection: keep-alive",
    "Upgrade: websocket", "\r", *("\r\n".join(["A: b"] * number) for number in (200, 20_000)),
)  # fmt: skip
_EVENTS: tuple[object, ...] = (
    {"choices": 5}, {"choices": [{"text": 7}]}, {"usage": {"completion_tokens": -3}}, [], None, {},
    {"usage": {"completion_tokens": 1 << 40}}, {"error": {"message": "\u001b[31mred\n" * 99}},
    1e999, {"error": None}, 7, {"choices": [{"text": "a" * 100_000}]},
    {"usage": None, "choices": None},
    {"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}}, "text",
    {"usage": {"completion_tokens": 30}}, {"error": "\u202e"}, {"error": "e" * 5_000},
)  # fmt: skip


def _status(parts: list[Part], rng: Random) -> None:
    top = str(parts[0])
    rest = top.partition("\r\n")[2]
    first = rng.choice((f"HTTP/1.1 {rng.choice(_STATUS)}", "HTTP/9.9 200 OK", "ICY 200", "\0", ""))
    parts[0] = f"{first}\r\n{rest}"


def _header(parts: list[Part], rng: Random) -> None:
    line, sep, rest = str(parts[0]).partition("\r\n")
    parts[0] = f"{line}{sep}{rng.choice(_HEADERS)}\r\n{rest}"


def _chunked(parts: list[Part], rng: Random) -> None:
    """The body in chunks, with sizes that are right or not."""
    line, sep, rest = str(parts[0]).partition("\r\n")
    parts[0] = f"{line}{sep}Transfer-Encoding: chunked\r\n{rest}"
    sizes = (
        "{:x}",
        "{:x}",
        "{:x};a=b",
        "-{:x}",
        "ffffffffffffffff",
        "+{:x}",
        "0x{:x}",
        "{:x} ",
        "",
    )
    size = rng.choice(sizes)
    for at in range(1, len(parts)):
        if isinstance(part := parts[at], str):
            how = size if rng.random() < 0.5 else "{:x}"
            parts[at] = f"{how.format(len(part))}\r\n{part}\r\n"
    parts.append(rng.choice(("0\r\n\r\n", "0\r\n", "", "0\r\nA: b\r\n\r\n", "00000\r\n\r\n")))


def _packed(parts: list[Part], rng: Random) -> None:
    """The body packed, as a small file of many bytes, or damaged."""
    line, sep, rest = str(parts[0]).partition("\r\n")
    parts[0] = f"{line}{sep}Content-Encoding: gzip\r\n{rest}"
    body = "".join(part for part in parts[1:] if isinstance(part, str))
    plain = rng.choice((body.encode("latin-1"), b" " * (100 << 20), b"data: \n\n" * (1 << 22)))
    packed = gzip.compress(plain, 9, mtime=0)
    parts[1:] = [(mutated_bytes(packed, rng) if rng.random() < 0.3 else packed).decode("latin-1")]


def _bytes(parts: list[Part], rng: Random) -> None:
    at = rng.randrange(len(parts))
    if isinstance(part := parts[at], str):
        parts[at] = mutated_bytes(part.encode("latin-1", "replace"), rng).decode("latin-1")


def _typed(parts: list[Part], rng: Random) -> None:
    at = rng.randrange(len(parts))
    if isinstance(part := parts[at], str):
        with suppress(ValueError):  # there is no JSON
            start, end = part.index("{"), part.rindex("}") + 1
            tree = typed_tree(json.loads(part[start:end]), rng)
            parts[at] = part[:start] + json.dumps(tree) + part[end:]


def _event(parts: list[Part], rng: Random) -> None:
    lead = rng.choice(("data: ", "data:", "data:  ", "event: x\ndata: ", "id: 1\ndata: ", ": "))
    end = rng.choice(("\n\n", "\r\n\r\n", "\n", "\r\r", ""))
    event = json.dumps(rng.choice(_EVENTS), ensure_ascii=rng.random() < 0.5)
    made = f"{lead}{event}{end}".encode().decode("latin-1")
    parts.insert(rng.randint(1, len(parts)), made * rng.choice((1, 1, 1, 60)))


def _endless(parts: list[Part], rng: Random) -> None:
    words = (": ping\n\n", "data: {}\n\n", "A: b\r\n", "x" * 70_000, "\n" * 9_000, "data: ", " ")
    again = rng.choice((*words, rng.choice(WORDS).decode("latin-1"))) or " "
    parts.insert(rng.randint(0, len(parts)), {"again": again * max(4_096 // len(again), 1)})


def _end(parts: list[Part], rng: Random) -> None:
    """The connection ends early, or stays without a word."""
    at = rng.randint(0, len(parts))
    # Before the interface is known, a silent server is waited for ten seconds.
    is_stream = "event-stream" in str(parts[0])
    how = rng.choice(("close", "reset", "hold" if is_stream else "close"))
    parts[at:] = [{how: True}]


def _drip(parts: list[Part], _rng: Random) -> None:
    """Each byte for itself."""
    whole = "".join(part for part in parts if isinstance(part, str))[:3_000]
    parts[:] = list(whole)


def _twice(parts: list[Part], rng: Random) -> None:
    parts[rng.randint(0, len(parts)) :] += parts[rng.randint(0, len(parts)) :]


_CHANGES: tuple[Callable[[list[Part], Random], None], ...] = (
    *(_status, _header, _header, _chunked, _packed, _bytes, _bytes, _typed, _typed),
    *(_event, _event, _event, _endless, _end, _end, _drip, _twice),
)
