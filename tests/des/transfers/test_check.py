"""The check of requests that two servers share finds every broken part of its invariant."""

import pytest

from sim.core.errors import InvariantError
from sim.des.deployment import Deployment, HandoverOptions, ServerPool
from sim.des.live import LiveServers
from sim.des.routers.router import RoundRobin
from sim.des.servers import Servers
from sim.des.transfers.handover import check_handovers
from sim.des.transfers.transfers import Transfers
from sim.latency.kv_memory import KvBytes
from sim.scenario.servers_section import TransferSection
from sim.sglang.config import SchedulerConfig
from tests.support.listener import SilentListener
from tests.support.serve import linear_latency
from tests.support.workloads import scripted

# A prompt of 100 tokens takes 100 s: 1 GB a token.
SLOW = TransferSection(bandwidth_gb_s=1.0)


@pytest.fixture
def under_way():
    """Two servers, and a request whose KV is on its way from the first to the second."""
    pools = [
        ServerPool(role, role, Servers(SchedulerConfig(role=role), [linear_latency()]),
                   received=KvBytes(1_000_000_000))
        for role in ("prefill", "decode")
    ]  # fmt: skip
    handover = HandoverOptions(
        lambda env, ranks, sizes: Transfers(env, SLOW, sizes, num_ranks=ranks), 0, False, False
    )
    routers = {"prefill": RoundRobin(), "decode": RoundRobin()}
    live = LiveServers(Deployment(pools, routers, handover), SilentListener())
    live.submit(scripted("a", (1, 100), output=5, ignore_eos=True))
    live.advance(1_000_000_000)
    source, target = live.engines
    return source.scheduler.partner, source.requests, target.requests


def test_a_request_that_is_sent_is_where_it_should_be(under_way):
    handovers, *_ = under_way
    assert handovers.live["a"].num_under_way == 1
    check_handovers(handovers)


def computes_more(handover, source, target):
    handover.num_computed = 101


def leaves_too_early(handover, source, target):
    del source["a"]


def sends_what_has_no_kv(handover, source, target):
    source["a"].seq_len = 99


def sends_to_nobody(handover, source, target):
    del target["a"]


def sends_without_room(handover, source, target):
    target["a"].seq_len = 98


def arrives_nowhere(handover, source, target):
    handover.has_arrived, handover.num_under_way = True, 0
    del target["a"]


@pytest.mark.parametrize(
    ("breaks", "what"),
    [
        (computes_more, "101 of 100 prompt tokens are computed"),
        (leaves_too_early, "its KV left the prefill server before it arrived"),
        (sends_what_has_no_kv, "100 tokens may be sent, but 99 have KV"),
        (sends_to_nobody, "its KV is sent to a server that does not know it"),
        (sends_without_room, "100 prompt tokens are sent, but only 98 have room"),
        (arrives_nowhere, "its KV is sent to a server that does not know it"),
    ],
)
def test_what_is_broken_is_named(under_way, breaks, what):
    handovers, source, target = under_way
    breaks(handovers.live["a"], source, target)
    with pytest.raises(InvariantError, match=what):
        check_handovers(handovers)
