"""Limits on connections: slow clients, too many of them, and those that speak no HTTP."""

import asyncio
import errno
import logging
import resource
import socket
import weakref
from unittest.mock import Mock

import h11
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.server import ServerState

from sim.api import http_server as web
from sim.core.errors import InputError
from sim.core.garbage import rare_collections
from tests.api.conftest import serving

UNFINISHED = b"GET / HTTP/1.1\r\nHost: x\r\nX: "
WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
# Longer than anything here takes: a server without the limit fails the test, and does not hang it.
_ENDS_S = 60


@pytest.fixture
def app():
    async def answer(_request):
        return Response("a" * (64 << 20))

    async def short(_request):
        return Response("short")

    return Starlette(routes=[Route("/long", answer), Route("/", short)])


@pytest.fixture
def over(app):
    """Returns a function that runs `clients(port, server)` with the application."""

    async def run(clients):
        async with serving(app) as (port, server):
            return await asyncio.wait_for(clients(port, server), _ENDS_S)

    return lambda clients: asyncio.run(run(clients))


async def connect(port, data):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


async def reply_to(port, data):
    """All that comes until the server closes the connection."""
    reader, writer = await connect(port, data)
    reply = await reader.read()
    writer.close()
    return reply


def test_connection_on_which_nothing_comes_is_closed(over, monkeypatch):
    monkeypatch.setattr(web, "_HEADERS_S", 0)
    assert over(lambda port, _: reply_to(port, b"")) == b""


def test_headers_that_begin_and_do_not_end_have_a_limit(over, monkeypatch):
    """Also after an answer: uvicorn counts no time once they have begun."""

    async def client(port, _):
        reader, writer = await connect(port, WHOLE)
        await reader.readuntil(b"short")
        monkeypatch.setattr(web, "_HEADERS_S", 0)
        writer.write(UNFINISHED)
        rest = await reader.read()
        writer.close()
        return rest

    assert over(client) == b""


def test_client_that_reads_nothing_is_disconnected(over, monkeypatch):
    monkeypatch.setattr(web, "_READS_NOTHING_S", 0)

    async def client(port, server):
        _, writer = await connect(port, WHOLE.replace(b"/", b"/long", 1))
        while not server.server_state.total_requests:
            await asyncio.sleep(0)
        while server.server_state.connections:
            await asyncio.sleep(0)
        writer.close()
        return True

    assert over(client)


def test_client_too_many_is_refused_and_others_are_answered(over, monkeypatch, capfd):
    """One line says so, however many are refused; who leaves makes room for another one."""
    monkeypatch.setattr(web, "most_connections", lambda: 3)
    monkeypatch.setattr(web, "_said_s", {})

    async def clients(port, server):
        held = [await connect(port, UNFINISHED) for _ in range(3)]
        while len(server.server_state.connections) < 3:
            await asyncio.sleep(0)
        refused = [await reply_to(port, b"") for _ in range(4)]
        held[0][1].close()
        while len(server.server_state.connections) == 3:
            await asyncio.sleep(0)
        answered = await reply_to(port, LAST)
        for _, writer in held:
            writer.close()
        return refused, answered

    refused, answered = over(clients)
    assert all(each.startswith(b"HTTP/1.1 503 ") for each in refused)
    assert answered.endswith(b"short")
    assert capfd.readouterr().err == "servetwin: 3 clients are connected: no more are answered\n"


def test_refused_client_does_not_count_while_it_is_disconnected(app, monkeypatch):
    """uvicorn answers all requests with 503 while it counts as many connections."""
    monkeypatch.setattr(web, "most_connections", lambda: 1)
    monkeypatch.setattr(web, "_said_s", {})
    state = ServerState()

    def connected():
        transport = Mock(get_extra_info=Mock(return_value=None))
        connection = web.Connection(web.web_server(app).config, state, {}, loop)
        connection.connection_made(transport)
        return connection, transport

    loop = asyncio.new_event_loop()
    first, _ = connected()
    _, refused = connected()
    assert refused.write.call_args.args[0].startswith(b"HTTP/1.1 503 ")
    assert state.connections == {first}
    loop.close()


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64])
def test_what_is_no_host_name_is_refused_in_one_line(host):
    with pytest.raises(InputError, match=rf"cannot listen on {host}:0: not a host name"):
        web.listen(host, 0)


@pytest.mark.parametrize(
    ("limits", "raised", "most"),
    [
        ((256, 256), None, 192),
        ((1024, 4096), (4096, 4096), 4032),
        ((1024, resource.RLIM_INFINITY), (65_535, resource.RLIM_INFINITY), 65_471),
        ((200_000, 200_000), None, 65_471),
    ],
)
def test_connections_leave_files_for_others(monkeypatch, limits, raised, most):
    """The system's limit on open files is raised as far as it may be."""
    given = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: given.append(new))
    assert web.most_connections() == most
    assert given == ([] if raised is None else [raised])


def test_lack_of_files_is_said_in_one_line(monkeypatch, capfd, caplog):
    """When more clients come at once than there are files; asyncio would print a traceback each."""
    monkeypatch.setattr(web, "_said_s", {})
    context = {"message": "socket.accept()", "exception": OSError(errno.EMFILE, "Too many files")}
    loop = asyncio.new_event_loop()
    for _ in range(3):
        web.say_full(loop, context)
    assert capfd.readouterr().err == "servetwin: clients wait to be connected: Too many files\n"
    assert not caplog.records
    web.say_full(loop, {"message": "another fault", "exception": KeyError("x")})
    assert [record.message for record in caplog.records] == ["another fault"]
    loop.close()


def test_no_http_after_an_answer_has_begun_leaves_no_traceback(over, caplog):
    """The answer, that the method is wrong, is sent before the body is there."""
    begun = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def client(port, _):
        reader, writer = await connect(port, begun)
        await reader.readuntil(b"Not Allowed")
        writer.write(b"no size of a chunk\r\n")
        rest = await reader.read()
        writer.close()
        return rest

    over(client)
    assert not [record for record in caplog.records if record.exc_info]


def test_as_many_connections_may_wait_as_the_socket_was_made_for(app):
    """asyncio sets the number anew when it begins to serve."""

    class Recorded(socket.socket):
        asked = ()

        def listen(self, backlog):
            self.asked = (*self.asked, backlog)
            super().listen(backlog)

    with Recorded(fileno=web.listen("127.0.0.1", 0).detach()) as listener:
        web.serve(app, listener, asyncio.Event().wait, lambda stop: stop())
        assert listener.asked == (4096,)


def test_garbage_of_requests_does_not_pile_up():
    """Commands collect cycles rarely, but web frameworks leave some with every request."""
    living = []

    class Cycle:
        def __init__(self):
            self.own = self
            living.append(weakref.ref(self))

    async def makes_cycles(_request):
        for _ in range(20_000):
            Cycle()
        return Response(str(sum(each() is not None for each in living)))

    counts = []

    async def client():
        reply = await reply_to(port, LAST)
        counts.append(int(reply.split(b"\r\n\r\n")[1]))

    with rare_collections(), web.listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        web.serve(Starlette(routes=[Route("/", makes_cycles)]), listener, client)
    assert counts[0] < 10_000


def test_an_answer_on_a_connection_that_has_failed_leaves_no_traceback(monkeypatch):
    """h11 refuses the first answer after what is no HTTP, and any later one in other words."""
    web.web_server(Starlette())
    logger, shown = logging.getLogger("uvicorn.error"), []
    monkeypatch.setattr(logger, "callHandlers", shown.append)
    connection = h11.Connection(h11.SERVER)
    answer = h11.Response(status_code=200, headers=[])
    connection.receive_data(b"no HTTP\r\n\r\n")
    with pytest.raises(h11.RemoteProtocolError):
        connection.next_event()
    connection.send(h11.Response(status_code=400, headers=[("Connection", "close")]))
    for _ in range(2):
        try:
            connection.send(answer)
        except h11.LocalProtocolError:
            logger.exception("no answer")
    try:
        h11.Response(status_code=42, headers=[])
    except h11.LocalProtocolError:
        logger.exception("a fault")
    assert [record.msg for record in shown] == ["a fault"]
