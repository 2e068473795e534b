"""A part of a prompt that a prefill server sends later."""

from types import SimpleNamespace

import pytest

from sim.des.clock import Clock
from sim.des.routers.router import Target
from sim.des.traffic import SimulationLog
from sim.des.transfers.handover import Handover, Handovers
from sim.des.transfers.transfers import Transfers
from sim.latency.kv_memory import KvBytes
from sim.scenario.servers_section import TransferSection
from sim.workload.workload import ScriptedRequest


@pytest.mark.parametrize("from_ns", [0, 500])
def test_part_leaves_at_its_time(from_ns):
    """64 bytes at a byte a nanosecond arrive 64 ns after its time."""
    env = Clock()
    settings = TransferSection.model_validate({"bandwidth_gb_s": 1.0})
    transfers = Transfers(env, settings, lambda _: KvBytes(1, 0), 0)
    handovers = Handovers(
        env, SimulationLog(), transfers, message_ns=0, after_prefill=False, chooses_late=False
    )
    server = SimpleNamespace(engines=())
    prefill, decode = Target(server, server, 0), Target(server, server, 1)
    request = ScriptedRequest(SimpleNamespace(rid="r", prompt=range(100)), None)
    handover = handovers.live["r"] = Handover(request, prefill, decode)
    handover.allocation_known = True
    handovers.computed("r", 64, is_last=False, from_ns=from_ns)
    assert handover.num_sent == (0 if from_ns else 64)
    env.run()
    assert handover.num_sent == handover.sent_tokens == 64
    assert env.now_ns == from_ns + 64
