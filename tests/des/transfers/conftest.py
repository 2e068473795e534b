"""Runs transfers, and notes when each ends."""

from dataclasses import dataclass, field

import pytest

from sim.des.clock import ARRIVAL, Clock, TimedEvent
from sim.des.transfers.transfers import Transfers
from sim.latency.kv_memory import KvBytes
from sim.scenario.servers_section import TransferSection


@dataclass
class Sent:
    """What became of some transfers: when each arrived or failed, and in which order."""

    transfers: Transfers
    arrived_ns: dict[str, int] = field(default_factory=dict)
    failed_ns: dict[str, int] = field(default_factory=dict)


def run_all(starts, *, bytes_per_token=1, state_bytes=0, seed=0, send_queues=0, **keys):
    """Run transfers `(start_ns, rid, source, target, num_tokens)` to the end; the keys are those of
    the section. A gigabyte a second is a byte a nanosecond."""
    env = Clock()
    settings = TransferSection.model_validate({"bandwidth_gb_s": 1.0, **keys})
    size = KvBytes(bytes_per_token, state_bytes)
    transfers = Transfers(env, settings, lambda target: size, seed, send_queues=send_queues)
    sent = Sent(transfers)

    def start(rid, source, target, num_tokens):
        transfers.start(
            rid,
            (source, 0),
            (target, 0),
            num_tokens,
            is_last=True,
            ended=lambda has_arrived: (
                sent.arrived_ns if has_arrived else sent.failed_ns
            ).__setitem__(rid, env.now_ns),
        )

    for start_ns, *what in starts:
        event = TimedEvent(env, start_ns, ARRIVAL)
        event.callbacks.append(lambda _, what=what: start(*what))
    env.run()
    return sent


@pytest.fixture(scope="session", name="run_all")
def _run_all():
    return run_all
