"""Servers that get their requests while they run."""

import pytest
from hypothesis import given

from sim.core.request import Status
from sim.des.deployment import Deployment
from sim.des.live import LiveServers
from sim.des.run import simulate
from sim.des.servers import Servers
from sim.vllm.config import VllmConfig
from sim.workload.workload import every_request, listed
from tests.support.random_scenarios import random_scenarios
from tests.support.serve import linear_latency
from tests.support.workloads import scripted

MS = 1_000_000


class Heard:
    """Notes what a listener is told."""

    def __init__(self):
        self.tokens, self.records = {}, {}

    def generated(self, rid, num_tokens):
        assert num_tokens > self.tokens.get(rid, 0)
        self.tokens[rid] = num_tokens

    def over(self, record):
        self.records[record.spec.rid] = record


def live(config=None, latencies=None, host=None, num_front_ends=1):
    heard = Heard()
    latencies = latencies or [linear_latency()]
    servers = Servers(config or VllmConfig(), latencies, host, num_front_ends)
    return LiveServers(Deployment.of_servers(servers), heard), heard


@given(random_scenarios())
def test_live_servers_give_the_times_of_a_simulation(scenario):
    """Requests that arrive one by one, at their times, end as those of a workload."""
    requests = [
        request.sent_at(number * 7_654_321 + 1)
        for number, request in enumerate(every_request(scenario.workload))
    ]
    servers, heard = live(scenario.config, scenario.latencies(), scenario.host)
    for request in requests:
        # One nanosecond earlier: an arrival goes before the ends of steps of the same time.
        servers.advance(request.spec.arrival_ns - 1)
        servers.move_to(request.spec.arrival_ns)
        servers.submit(request)
    while servers.next_ns is not None:
        servers.advance(servers.next_ns)
    deployment = Deployment.of_one_kind(scenario.config, scenario.latencies(), host=scenario.host)
    log = simulate(listed(requests), deployment).requests
    for row, rid in enumerate(log.rid):
        record = heard.records[rid]
        assert record.finish_ns == log.finish_ns[row]
        assert record.first_token_ns == log.first_token_ns[row]
        assert record.output_tokens == log.output_tokens[row] >= heard.tokens.get(rid, 0)


def test_live_tokens_are_told_when_their_step_has_ended():
    servers, heard = live()
    servers.advance(3 * MS)
    servers.submit(scripted("a", (1, 10), output=3, ignore_eos=True))
    servers.advance(3 * MS + 5_000_000)
    assert heard.tokens == {}
    servers.advance(10 * MS)
    assert heard.tokens == {"a": 1}
    servers.advance(50 * MS)
    assert heard.records["a"].output_tokens == 3
    assert heard.records["a"].spec.arrival_ns == 3 * MS
    assert servers.next_ns is None


@pytest.mark.parametrize("when_ms", [0, 30])
def test_live_cancelled_request_gives_its_blocks_back(when_ms):
    servers, heard = live()
    servers.submit(scripted("a", (1, 100), output=1000, ignore_eos=True))
    servers.advance(when_ms * MS)
    servers.cancel("a")
    servers.advance((when_ms + 50) * MS)
    assert heard.records["a"].status is Status.ABORTED
    (engine,) = servers.engines
    assert not engine.requests
    assert engine.kv.free_tokens + engine.kv.evictable_tokens == engine.kv.pool_tokens
    servers.cancel("a")
