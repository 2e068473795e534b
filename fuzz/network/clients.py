"""Clients that send anything at all to `simulate serve` and `realrun serve`.

A file has what they send: a batch of requests, each with what its client does after it.
"""

import http.client
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from http import HTTPStatus
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any, Self

from fuzz.mutate import WORDS, mutated_bytes, mutated_tree
from fuzz.typed import typed_tree
from sim.api.address import Address
from sim.cli import main as simulate
from sim.commands.serve import serve_built
from sim.scenario.build import build
from sim.scenario.load import load_scenario

BATCH = "batch.json"
NUM_REQUESTS = 12
# How long a hostile client reads; a good one waits until it has its answer.
_READS_S, _WAITS_S = 0.3, 100.0
_SPEED = 50.0
_OUT = Path("served")

Stop = Callable[[], None]
Started = Callable[[int, Stop], None]
Request = dict[str, str]


def _simulated(scenario: Path, out: Path | None, started: Started) -> None:
    serve_built(build(load_scenario(scenario)), Address(port=0), _SPEED, None, out, started)


def _real(scenario: Path, out: Path | None, started: Started) -> None:
    from realrun.live.serve_model import ServeOptions, serve_model
    from realrun.runner.warm_runner import RunnerOptions

    runner = RunnerOptions(device="cpu")
    options = ServeOptions(out=out, started=started)
    serve_model(scenario, overrides=(), runner=runner, options=options)


_SERVERS: dict[str, Callable[[Path, Path | None, Started], None]] = {
    "simulate": _simulated,
    "realrun": _real,
}


class _Served:
    """A server in a thread of its own."""

    def __init__(self, kind: str, scenario: str, out: Path | None) -> None:
        self._kind, self._scenario, self._out = kind, Path(scenario), out
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stop: Stop | None = None
        self.error: BaseException | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self.error is not None:
            raise self.error
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._stop is not None:
            self._stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            _SERVERS[self._kind](self._scenario, self._out, self._note)
        except BaseException as error:
            self.error = error
        finally:
            self._started.set()

    def _note(self, port: int, stop: Stop) -> None:
        self.port, self._stop = port, stop
        self._started.set()


def clients(arguments: Sequence[str]) -> int:
    """`(simulate|realrun) SCENARIO BATCH [out]`: a good client is answered, and all adds up.

    `out`: the run is written, too, which takes longer. The exit code is 0.
    """
    kind, scenario, batch, *out = arguments
    requests: list[Request] = json.loads(Path(batch).read_text(encoding="utf-8"))
    faults: list[str] = []
    with redirect_stdout(StringIO()):
        with _Served(kind, scenario, _OUT if out else None) as server:
            _send(server.port, requests)
            faults += _good(server.port)
        if server.error is not None:
            faults.append(f"the server ended: {server.error!r}")
        elif out and kind == "simulate" and not faults:
            faults += _again()
    for fault in faults:
        sys.stderr.write(f"internal error: {fault}\n")
    return 0


def _again() -> list[str]:
    """The folder's scenario, simulated, gives every request the same times."""
    code = simulate(["run", str(_OUT / "scenario.yaml"), "--requests", "again.csv"])
    if code:
        return [f"the served run is refused: exit code {code}"]
    same = Path("again.csv").read_bytes() == (_OUT / "requests.csv").read_bytes()
    return [] if same else ["the served run, simulated again, has other times"]


def _send(port: int, requests: Sequence[Request]) -> None:
    """Send all, each over a connection of its own; some stay open until the end."""
    opened = []
    for request in requests:
        with suppress(OSError):
            opened.append(connection := socket.create_connection(("127.0.0.1", port), _READS_S))
            data = request["data"].replace("PORT", str(port)).encode("latin-1", "replace")
            connection.sendall(data)
            _THEN[request["then"]](connection)
    for connection in opened:
        connection.close()


def _read(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass
    connection.close()


def _read_a_little(connection: socket.socket) -> None:
    connection.recv(1)
    _reset(connection)


def _half(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)
    _read(connection)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


_THEN: dict[str, Callable[[socket.socket], None]] = {
    "read": _read,
    "read a little": _read_a_little,
    "half": _half,
    "reset": _reset,
    "close": socket.socket.close,
    "stay": lambda _: None,
}


def _good(port: int) -> list[str]:
    """What is wrong with the answers that a client gets which does all as it should."""
    body = {"prompt": "Is anybody there?", "max_tokens": 3, "ignore_eos": True}
    asked = (
        ("GET", "/health", None),
        ("POST", "/v1/completions", body),
        ("GET", "/metrics", None),
    )
    faults = []
    for method, path, content in asked:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WAITS_S)
        try:
            text = None if content is None else json.dumps(content)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            if response.status != HTTPStatus.OK:
                faults.append(f"{path}: status {response.status} for a good client")
            elif content and json.loads(answer)["usage"]["completion_tokens"] != 3:
                faults.append(f"{path}: another number of tokens for a good client")
        except (OSError, http.client.HTTPException) as error:
            faults.append(f"{path}: no answer for a good client: {error!r}")
        finally:
            connection.close()
    return faults


# ---- batches -----------------------------------------------------------------------------------

_PATHS = (
    "/v1/completions", "/v1/chat/completions", "/generate", "/tokenize", "/detokenize", "/health",
    "/v1/models", "/v1/models/tiny", "/server_info", "/metrics", "/flush_cache", "/version",
    "/reset_prefix_cache", "/v1/models/%00", "/..%2f..", "//", "*", "/v1/completions?a=%ff", "",
    "/" + "a" * 70_000,
)  # fmt: skip
_BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "text", "max_tokens": 4, "stream": True, "temperature": 0.5,
                        "stream_options": {"include_usage": True}, "ignore_eos": True, "seed": 1,
                        "stop": ["a"], "min_tokens": 1, "top_p": 0.9, "n": 1, "priority": 1,
                        "model": "tiny"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "text"}], "stream": False,
                             "max_completion_tokens": 5, "model": "tiny", "tools": []},
    "/generate": {"text": "text", "stream": True,
                  "sampling_params": {"max_new_tokens": 4, "ignore_eos": True, "top_k": 3}},
    "/tokenize": {"prompt": "text", "add_special_tokens": True},
    "/detokenize": {"tokens": [1, 2, 3]},
}  # fmt: skip
_PROMPTS: tuple[object, ...] = (
    [1, 2, 3],
    [],
    [[1], [2]],
    [-1],
    [2**63],
    "",
    "a" * 20_000,
    [7] * 3_000,
    ["a", "b"],
)
_HEADERS = (
    "Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999", "Content-Length: x",
    "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Content-Type: text/plain",
    "Content-Type: \u00ff", "Expect: 100-continue", "Expect: x", "Upgrade: websocket",
    "Connection: Upgrade", "Origin: http://evil.example", "Origin: null", "Host: evil.example",
    "Authorization: Bearer \u00e9", "Content-Encoding: gzip", "no colon", ": x", " folded: x",
    "X: " + "a" * 80_000, "\r\n".join(["A: b"] * 2_000), "X: \0", "Cookie: " + "a=b; " * 500,
    "Accept: */*;q=nan", "Transfer-Encoding: chunked\r\nContent-Length: 4",
)  # fmt: skip


def hostile_batch(_old: bytes, rng: Random) -> bytes:
    """A batch of requests; most are good but for one thing."""
    batch = [
        {"data": _request(rng).decode("latin-1"), "then": rng.choice(sorted(_THEN))}
        for _ in range(NUM_REQUESTS)
    ]
    return json.dumps(batch, indent=1).encode()


def _request(rng: Random) -> bytes:
    path = rng.choice((*_BODIES, *_BODIES, rng.choice(_PATHS)))
    body = _body(path, rng)
    method = "POST" if path in _BODIES else rng.choice(("GET", "POST"))
    if rng.random() < 0.1:
        method = rng.choice(("PUT", "HEAD", "OPTIONS", "CONNECT", "PRI", "get", "", "\u00e9"))
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1:PORT", "Content-Type: application/json"]
    if rng.random() < 0.15:
        lines.append("Transfer-Encoding: chunked")
        body = _chunks(body, rng)
    elif rng.random() < 0.95:
        lines.append(f"Content-Length: {len(body)}")
    if rng.random() < 0.3:
        lines.insert(rng.randint(1, len(lines)), rng.choice(_HEADERS))
    if rng.random() < 0.7:
        lines.append("Connection: close")
    made = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body
    if rng.random() < 0.2:
        made = mutated_bytes(made, rng)
    if rng.random() < 0.1:
        made = made[: rng.randrange(len(made) + 1)]
    if rng.random() < 0.1:
        made *= rng.choice((2, 5))
    return made


def _body(path: str, rng: Random) -> bytes:
    tree = json.loads(json.dumps(_BODIES.get(path, {})))
    if "prompt" in tree and rng.random() < 0.3:
        tree["prompt"] = rng.choice(_PROMPTS)
    kind = rng.random()
    if kind < 0.35:
        tree = typed_tree(tree, rng)
    elif kind < 0.7:
        tree = mutated_tree(tree, rng)
    body = json.dumps(tree, ensure_ascii=rng.random() < 0.7).encode("utf-8", "surrogatepass")
    if kind > 0.93:
        body = rng.choice((b"", b"null", b"[]", b"[" * 5_000, b"\xff\xfe", rng.choice(WORDS), body))
        body = mutated_bytes(body, rng)
    return body[: 1 << 20]


def _chunks(body: bytes, rng: Random) -> bytes:
    size = rng.choice(
        ("{:x}", "{:x}", "{:x}", "{:x};a=b", "-{:x}", "0x{:x}", "ffffffffff", "", "g")
    )
    parts = [body[at : at + 40] for at in range(0, min(len(body), 4_000), 40)]
    made = b"".join(size.format(len(part)).encode() + b"\r\n" + part + b"\r\n" for part in parts)
    return made + rng.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"", b"0\r\nA: b\r\n\r\n", b"0\r\n"))
