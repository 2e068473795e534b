"""Listens for clients until Ctrl-C."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable

import uvicorn
from starlette.applications import Starlette

from sim.core.errors import InputError

# Open connections, idle ones included.
_BACKLOG = 4096
# How long answers that are under way may go on after Ctrl-C.
_GRACE_S = 30


def listen(host: str, port: int) -> socket.socket:
    """A socket for a server; with port 0, a free one.

    Raises:
        InputError: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        # Its connections inherit this. Else a reply's second packet waits for the first one's
        # acknowledgement, up to 40 ms: asyncio does not see that such a socket is of TCP.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        # The error's own text repeats the address; that of a name's look-up has no number.
        number = error.errno or 0
        known = os.strerror(number) if number > 0 else error.strerror
        raise InputError(f"cannot listen on {host}:{port}: {known}") from None
    return listener


def serve(
    app: Starlette,
    listener: socket.socket,
    beside: Callable[[], Awaitable[None]],
    started: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Serve an application until Ctrl-C, and run `beside` meanwhile.

    Then no more requests are taken, and `beside` is cancelled when all answers have ended, or after
    half a minute. `started` is called first, with a function that ends the server as Ctrl-C does,
    from any thread.

    Raises:
        InputError: `beside` raised it.
    """
    asyncio.run(_serve(app, listener, beside, started))


def _is_no_cancelled_answer(record: logging.LogRecord) -> bool:
    """False for the traceback of an answer that Ctrl-C cut off; one line counts all of them."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


async def _serve(
    app: Starlette,
    listener: socket.socket,
    beside: Callable[[], Awaitable[None]],
    started: Callable[[Callable[[], None]], None] | None,
) -> None:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_S,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancelled_answer)
    server = uvicorn.Server(config)
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
