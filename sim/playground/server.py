"""Serves the page on this computer, to browsers on this computer only."""

import json
import sys
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from sim.core.errors import InputError, error_line
from sim.playground.session import DEFAULT_REQUESTS, Playground
from sim.report.document import plotly_bytes

_HOST = "127.0.0.1"
_MAX_BODY = 1 << 16
_HTML, _JSON = "text/html; charset=utf-8", "application/json"
_SCRIPT = "text/javascript; charset=utf-8"
_FILES = {
    "/": ("index.html", _HTML),
    "/play.js": ("play.js", _SCRIPT),
    "/play.css": ("play.css", "text/css; charset=utf-8"),
}
_HEADERS = {
    # The page loads what this server has, and nothing else; no other page may show it in a frame.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self';"
    " style-src 'self' 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PlayServer(ThreadingHTTPServer):
    """Listens on the loopback address only."""

    daemon_threads = True

    def __init__(self, playground: Playground, port: int) -> None:
        self.playground = playground
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            raise InputError(f"--port {port}: cannot be used: {error.strerror}") from error
        self.hosts = {f"{name}:{self.server_port}" for name in (_HOST, "localhost")}

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: PlayServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if not self._is_from_here():
            self._refuse(HTTPStatus.FORBIDDEN, "only pages of this computer are answered")
        elif path in _FILES:
            name, kind = _FILES[path]
            self._send(HTTPStatus.OK, files("sim.playground").joinpath("page", name).read_bytes(),
                       kind)  # fmt: skip
        elif path == "/plotly.min.js":
            self._send(HTTPStatus.OK, plotly_bytes(), _SCRIPT)
        elif path == "/scenario":
            self._send_json(HTTPStatus.OK, self.server.playground.describe())
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        origin = self.headers.get("Origin", "").removeprefix("http://")
        is_json = self.headers.get_content_type() == _JSON
        if not self._is_from_here() or origin not in self.server.hosts or not is_json:
            self._refuse(HTTPStatus.FORBIDDEN, "only the page itself is answered")
            return
        length = self.headers.get("Content-Length", "")
        # Python refuses to read a number of thousands of digits.
        is_number = length.isascii() and length.isdigit() and len(length) < 10
        if not is_number or int(length) > _MAX_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too long")
            return
        try:
            self._answer(self.path, *_read(self.rfile.read(int(length))))
        except InputError as error:
            self._refuse(HTTPStatus.UNPROCESSABLE_ENTITY, error_line(str(error)))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            message = f"internal error, not your input: {type(error).__name__}: {error}"
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, message)

    def _answer(self, path: str, settings: dict[str, str], num_requests: int) -> None:
        playground = self.server.playground
        if path == "/simulate":
            self._send_json(HTTPStatus.OK, playground.simulate(settings, num_requests))
        elif path == "/yaml":
            self._send_json(HTTPStatus.OK, {"yaml": playground.yaml(settings)})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _is_from_here(self) -> bool:
        """Whether the request names this server, and no other site's page sent it.

        A name of another site that leads to this address is refused, too.
        """
        site = self.headers.get("Sec-Fetch-Site", "none")
        return self.headers.get("Host") in self.server.hosts and site in {"same-origin", "none"}

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        # The rest of the request was not read, so the connection cannot be used again.
        self.close_connection = True
        self._send_json(status, {"error": reason})

    def _send_json(self, status: HTTPStatus, content: Any) -> None:
        self._send(status, json.dumps(content, allow_nan=False).encode(), _JSON)

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def version_string(self) -> str:
        return "servetwin"

    def log_message(self, *_: Any) -> None:
        """Say nothing on stderr."""


def _read(body: bytes) -> tuple[dict[str, str], int]:
    """The settings, and how many requests to simulate, that the page sent."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    wanted = content if isinstance(content, dict) else {}
    settings, num = wanted.get("settings"), wanted.get("num_requests", DEFAULT_REQUESTS)
    if not isinstance(settings, dict) or not all(isinstance(v, str) for v in settings.values()):
        raise InputError("settings: must be texts by key")
    if type(num) is not int:
        raise InputError("requests: must be a whole number")
    return settings, num
