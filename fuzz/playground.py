"""Sends the content of a file to a playground: a link, a body, or a whole request."""

import json
import re
import socket
import sys
import threading
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl

from sim.commands.serve import make_server
from sim.playground.server import PlayServer

_WAIT_S, _POLL_S = 120.0, 0.02
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def playground(arguments: Sequence[str]) -> int:
    """Answer as a command does: `scenario (link|body|request) FILE`.

    Returns 0 if the server did what it was asked, 2 if it said on one line why not.
    """
    scenario, what, name = arguments[:3]
    content = Path(name).read_bytes()
    with make_server(Path(scenario), (), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
        thread.start()
        try:
            for path in ("simulate", "yaml"):
                answer = _answer(server, _request(server, path, what, content))
                if (code := _judged(answer)) != 0:
                    return code
            return 0
        finally:
            server.shutdown()
            thread.join()


def _request(server: PlayServer, path: str, what: str, content: bytes) -> bytes:
    host = f"127.0.0.1:{server.server_port}"
    if what == "request":
        return content.replace(b"HOST", host.encode()).replace(b"PATH", path.encode())
    if what == "link":
        # What the page makes of the part of its address after the #.
        text = content.decode("utf-8", "replace")
        content = json.dumps({"settings": dict(parse_qsl(text)), "num_requests": 20}).encode()
    return (
        f"POST /{path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + content


def _answer(server: PlayServer, request: bytes) -> bytes:
    address = ("127.0.0.1", server.server_port)
    received = bytearray()
    with socket.create_connection(address, timeout=_WAIT_S) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                received += part
        except TimeoutError:
            raise
        except OSError:
            pass  # the server has closed the connection without reading all of it
    return bytes(received)


def _judged(answer: bytes) -> int:
    """The exit code of an answer; what the server complains of is printed as it came."""
    found = _STATUS.match(answer)
    if found is not None and int(found[1]) == HTTPStatus.OK:
        return 0
    try:
        error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    except (ValueError, TypeError, KeyError):
        error = "no JSON"  # what is no HTTP is answered by the library
    sys.stderr.write(f"{error}\n")
    sys.stderr.flush()
    return 2
