"""A live server whose clock the test moves."""

import pytest

from sim.api.live_server import LiveServer
from sim.api.metrics import Metrics
from sim.des.routers.router import RoundRobin
from sim.des.run import RunOptions
from sim.des.servers import Servers
from sim.testing.serve import linear_latency
from sim.vllm.config import VllmConfig
from sim.vllm.metric_names import METRIC_NAMES


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
    return Metrics(METRIC_NAMES, "tiny", lambda: server_box[0].loads)


@pytest.fixture
def server_box():
    return []


@pytest.fixture
def server(clock, metrics, server_box):
    """Answers whose clients do not say otherwise have four tokens."""
    servers = Servers(VllmConfig(), [linear_latency()], None, 1, RunOptions())
    lengths = iter(lambda: 4, None)
    made = LiveServer(servers, RoundRobin(), lengths, metrics=metrics, clock_ns=clock)
    server_box.append(made)
    return made
