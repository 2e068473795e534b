"""What is below the routes: the socket, limits on connections, and the loop until Ctrl-C."""

import asyncio
import errno
import logging
import os
import resource
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from sim.core.errors import InputError, say
from sim.core.garbage import usual_collections

# Connections that may wait to be accepted.
_BACKLOG = 4096
# How long answers that are under way may go on after Ctrl-C.
_GRACE_S = 30
# How long a client may take to send the headers of a request.
_HEADERS_S = 10.0
# How long a client may read nothing while more is to be sent than the system buffers.
_READS_NOTHING_S = 60.0
# The limit on open files that is set, as by SGLang 0.5.23 and vLLM 0.33.0; and how many of them are
# kept for files that are no connections.
_MOST_FILES, _OTHER_FILES = 65_535, 64
# For how long a remark is not printed again.
_SAID_AGAIN_S = 60.0
# What h11 says of an answer after the connection's last one, and after what is no HTTP.
_TOO_LATE = (
    "can't handle event type Response when role=SERVER",
    "Can't send data when our state is ERROR",
)
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens for clients; with port 0, on a free port.

    Raises InputError: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        # Its connections inherit this. Without it a reply's second packet waits for the first one's
        # acknowledgement, up to 40 ms. asyncio sets it only where a socket names the protocol TCP,
        # which this one does not.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except UnicodeError:  # a part of the name is empty, or longer than 63 characters
        raise InputError(f"cannot listen on {host}:{port}: not a host name") from None
    except OSError as error:
        # The error's own text repeats the address. A failed look-up of a name has no error number
        # of the system, but a text.
        number = error.errno or 0
        known = os.strerror(number) if number > 0 else error.strerror
        raise InputError(f"cannot listen on {host}:{port}: {known}") from None
    return listener


def serve(
    app: ASGIApp,
    listener: socket.socket,
    beside: Callable[[], Awaitable[None]],
    started: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Serve an application until Ctrl-C, or until `beside`, which runs meanwhile, returns or fails.

    From then on no more requests are taken. `beside` is cancelled when all answers have ended, or
    after half a minute. `started` is called first, with a function that ends the server as Ctrl-C
    does, from any thread.

    Raises Exception: what `beside` raised.
    """
    with usual_collections():
        asyncio.run(_serve(app, listener, beside, started))


def web_server(app: ASGIApp) -> uvicorn.Server:
    """The server of an application, with limits on its connections."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        # Warnings are about what clients did wrong; who sends many must not fill a disk.
        log_level="error",
        access_log=False,
        lifespan="off",
        backlog=_BACKLOG,
        limit_concurrency=most_connections() + 1,
        timeout_graceful_shutdown=_GRACE_S,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_worth_a_traceback)
    return uvicorn.Server(config)


def _is_worth_a_traceback(record: logging.LogRecord) -> bool:
    """False for an answer that nobody gets, which is no fault of the server.

    Either Ctrl-C has cut it off, and a line of uvicorn's counts all of those. Or its client has
    since sent what is no HTTP, and got status 400 for it.
    """
    error = None if record.exc_info is None else record.exc_info[1]
    is_too_late = isinstance(error, h11.LocalProtocolError) and str(error).startswith(_TOO_LATE)
    return not (is_too_late or isinstance(error, asyncio.CancelledError))


async def _serve(
    app: ASGIApp,
    listener: socket.socket,
    beside: Callable[[], Awaitable[None]],
    started: Callable[[Callable[[], None]], None] | None,
) -> None:
    server = web_server(app)
    asyncio.get_running_loop().set_exception_handler(say_full)
    if started is not None:
        started(lambda: setattr(server, "should_exit", True))
    work = asyncio.ensure_future(beside())
    work.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        await server.serve(sockets=[listener])
    finally:
        work.cancel()
        results = await asyncio.gather(work, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


def say_full(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler of a loop: one line where no more files can be opened.

    That is so for a moment if more clients come at once than there are files. The loop tries again.
    """
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        _say_rarely(f"clients wait to be connected: {error.strerror}")
    else:
        loop.default_exception_handler(context)


_said_s: dict[str, float] = {}


def _say_rarely(text: str) -> None:
    """Print a remark, unless the same one was printed within a minute."""
    now_s = time.monotonic()
    if now_s - _said_s.get(text, -_SAID_AGAIN_S) >= _SAID_AGAIN_S:
        _said_s[text] = now_s
        say(f"servetwin: {text}")


def most_connections() -> int:
    """How many connections the system's limit on open files allows, after raising it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    most = wanted if soft == resource.RLIM_INFINITY else min(soft, _MOST_FILES)
    return max(1, most - _OTHER_FILES)


class Connection(H11Protocol):
    """A client's connection, with limits that uvicorn does not have.

    It is closed if headers take too long to come, or if its client reads nothing; uvicorn limits
    only the time between an answer and the next request. One too many is answered with status 503.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._headers_due: asyncio.TimerHandle | None = None
        self._reading_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most = (self.limit_concurrency or _MOST_FILES) - 1
        if len(self.connections) > most:
            _say_rarely(f"{most} clients are connected: no more are answered")
            transport.write(_FULL)
            transport.close()
            # uvicorn would count it until it has ended, and refuse the others' requests meanwhile.
            self.connections.discard(self)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # no HTTP, after an answer has begun
            self.transport.abort()
        if self.cycle is None or self.cycle.response_complete:
            self._expect_headers()
        elif self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(_HEADERS_S, self.timeout_keep_alive_handler)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading_due = self.loop.call_later(_READS_NOTHING_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading_due is not None:
            self._reading_due.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._headers_due, self._reading_due):
            if timer is not None:
                timer.cancel()
