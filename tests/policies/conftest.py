"""The shipped policies are found as a user's are: beside the scenario, or on Python's path."""

import sys
from functools import partial
from pathlib import Path

import pytest

from sim.commands.running.simulate import simulate_measured
from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt, stream_token_ids
from sim.des.run import RunOptions
from sim.engine.page_pool import PageCounts
from sim.engine.request import OutputTokens
from sim.metrics.summary import summarise
from sim.scenario.build import build
from sim.scenario.load import load_scenario
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.policies.policy import QueueView
from sim.sglang.request import RequestKV, SglangRequest

SHIPPED = Path(__file__).parents[2] / "scenarios" / "policies"
MODULES = {path.stem for path in SHIPPED.glob("*.py")}


@pytest.fixture(autouse=True)
def shipped_on_path(monkeypatch):
    """Imports of one test are not seen by the next."""
    monkeypatch.syspath_prepend(str(SHIPPED))
    yield
    for name in MODULES & set(sys.modules):
        del sys.modules[name]


@pytest.fixture
def make_request():
    """A waiting request that belongs to no scheduler."""

    def make(rid, *, arrival_ms=0, prompt=10, tenant="", predicted=None):
        spec = RequestSpec(
            rid, arrival_ms * 1_000_000, SegmentPrompt(((len(rid), prompt),)), 10,
            tenant=tenant, predicted_output_tokens=predicted,
        )  # fmt: skip
        outputs = OutputTokens(partial(stream_token_ids, 0, 0), partial(stream_token_ids, 0))
        kv = RequestKV(spec.prompt, outputs, PageCounts(0, 1).empty)
        return SglangRequest(spec, kv, limit=10)

    return make


@pytest.fixture
def order():
    """The ids of requests in a policy's order at a time."""

    def ordered(policy, requests, now_ms=0):
        view = QueueView(now_ms * 1_000_000, RadixNode.new_root(), frozenset(), 0)
        return [request.rid for request in policy.order(requests, view)]

    return ordered


@pytest.fixture
def run():
    """Simulate a scenario with some keys changed; returns its log and its summary."""

    def simulated(path, *overrides):
        log = simulate_measured(build(load_scenario(path, list(overrides))), RunOptions())
        return log, summarise(log)

    return simulated
