"""Shows the last window to Prometheus and to browsers of this machine."""

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from sim.core.errors import InputError

_HTML, _TEXT = "text/html; charset=utf-8", "text/plain; version=0.0.4; charset=utf-8"


class Exporter:
    """A web server with `/metrics` and, at `/`, the page. It listens on one address."""

    def __init__(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            InputError: the address cannot be used.
        """
        self.metrics = self.page = ""
        exporter = self

        class Handler(_Handler):
            shown = exporter

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"--port {port}: cannot be used on {host}: {reason}") from None
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    shown: Exporter
    timeout = 60

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._send(self.shown.metrics, _TEXT)
        elif path == "/" and self.shown.page:
            self._send(self.shown.page, _HTML)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def version_string(self) -> str:
        return "servetwin"

    def log_message(self, *_: Any) -> None:
        """Say nothing on stderr."""
