"""Listens for clients until Ctrl-C."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import uvicorn
from starlette.applications import Starlette

from sim.core.errors import InputError

# Open connections, idle ones included.
_BACKLOG = 4096


def listen(host: str, port: int) -> socket.socket:
    """A socket for a server; with port 0, a free one.

    Raises:
        InputError: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listener


def serve(app: Starlette, listener: socket.socket, beside: Callable[[], Awaitable[None]]) -> None:
    """Serve an application until Ctrl-C, and run `beside` meanwhile.

    Raises:
        InputError: `beside` raised it.
    """
    asyncio.run(_serve(app, listener, beside))


async def _serve(
    app: Starlette, listener: socket.socket, beside: Callable[[], Awaitable[None]]
) -> None:
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    work = asyncio.ensure_future(beside())
    work.add_done_callback(lambda _: setattr(server, "should_exit", True))
    try:
        await server.serve(sockets=[listener])
    finally:
        work.cancel()
        results = await asyncio.gather(work, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]
