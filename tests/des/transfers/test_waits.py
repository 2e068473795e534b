"""A part of a prompt that a prefill server sends later."""

import pytest

from sim.des.clock import Clock
from sim.des.routers.router import Target
from sim.des.servers import RunOptions, Servers
from sim.des.traffic import SimulationLog
from sim.des.transfers.handover import Handover, Handovers
from sim.des.transfers.transfers import Transfers
from sim.latency.kv_memory import KvBytes
from sim.scenario.build import build
from sim.scenario.load import load_scenario_text
from sim.scenario.servers_section import TransferSection
from tests.support.disaggregated import DISAGGREGATED
from tests.support.workloads import scripted


@pytest.mark.parametrize("from_ns", [0, 500])
def test_part_leaves_at_its_time(from_ns):
    """64 bytes at a byte a nanosecond arrive 64 ns after its time."""
    env, log = Clock(), SimulationLog()
    built = build(load_scenario_text(DISAGGREGATED.partition("pools:")[0] + "replicas: 2\n"))
    options = RunOptions(fast_forward=True)
    made = Servers(built.scheduler, built.latencies).make(
        env, log, [0, 1], options, clients_react=False
    )
    prefill, decode = (Target(each, each, i) for i, each in made.replicas.items())
    settings = TransferSection.model_validate({"bandwidth_gb_s": 1.0})
    transfers = Transfers(env, settings, lambda _: KvBytes(1, 0), 0)
    handovers = Handovers(
        env, log, transfers, message_ns=0, after_prefill=False, chooses_late=False
    )
    handover = Handover(scripted("r", (1, 100), output=1), prefill, decode)
    handovers.live["r"] = handover
    handover.allocation_known = True
    handovers.computed("r", 64, is_last=False, from_ns=from_ns)
    assert handover.num_sent == (0 if from_ns else 64)
    env.run()
    assert handover.num_sent == handover.sent_tokens == 64
    assert env.now_ns == from_ns + 64
