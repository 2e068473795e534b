"""A live server whose clock the test moves."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sim.api.answer import EstimatedTokens
from sim.api.app import Api, ServerInfo
from sim.api.http_server import listen, web_server
from sim.api.live_server import LiveServer
from sim.api.metrics import Metrics
from sim.des.deployment import Deployment
from sim.vllm.config import VllmConfig
from sim.vllm.family import VllmFamily
from tests.support.serve import linear_latency


class Clock:
    """Wall time in ns."""

    def __init__(self):
        self.now_ns = 5_000

    def __call__(self):
        return self.now_ns


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def metrics(server_box):
    return Metrics(VllmFamily().metric_names(), "tiny", lambda: server_box[0].loads)


@pytest.fixture
def server_box():
    return []


@pytest.fixture
def server(clock, metrics, server_box):
    """Answers whose clients do not say otherwise have four tokens."""
    deployment = Deployment.of_one_kind(VllmConfig(), [linear_latency()])
    lengths = iter(lambda: 4, None)
    made = LiveServer(deployment, lengths, metrics=metrics, clock_ns=clock)
    server_box.append(made)
    return made


@asynccontextmanager
async def serving(app):
    """An application behind a real socket; yields its port and its server."""
    web = web_server(app)
    with listen("127.0.0.1", 0) as listener:
        served = asyncio.ensure_future(web.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1], web
        finally:
            web.should_exit = True
            await served


@asynccontextmanager
async def listening(server, clock, metrics, **options):
    """The server behind a real socket, while time passes; yields its port.

    A round of the event loop is a millisecond, so nothing depends on how fast the machine is.
    """
    info = ServerInfo(model="tiny")
    api = Api(server, EstimatedTokens(), metrics, info, server.flush_cache, **options)

    async def pass_time():
        while True:
            clock.now_ns += 1_000_000
            server.catch_up()
            await asyncio.sleep(0)

    async with serving(api.app()) as (port, _):
        passing = asyncio.ensure_future(pass_time())
        try:
            yield port
        finally:
            passing.cancel()


@pytest.fixture
def over_sockets(server, clock, metrics):
    """Returns a function that runs `clients(port)` with the server; options are those of `Api`."""

    async def run(clients, options):
        async with listening(server, clock, metrics, **options) as port:
            return await clients(port)

    return lambda clients, **options: asyncio.run(run(clients, options))
