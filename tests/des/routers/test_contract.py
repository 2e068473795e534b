"""Every router keeps the contract of its seam, and every name of a scenario has its router."""

import inspect

import pytest
from pydantic import TypeAdapter

from sim.des.routers.table import ROUTERS
from sim.scenario.router_section import ROUTER_KINDS, RouterConfig
from sim.testing.contracts import RouterContract

ADAPTER = TypeAdapter(RouterConfig)
VARIED = [
    *((kind, {}) for kind in ROUTERS),
    ("prefix-aware", {"cache_threshold": 0.0, "block_tokens": 1, "max_tree_tokens": 300}),
    ("prefix-aware", {"balance_abs_threshold": 0, "balance_rel_threshold": 1}),
    ("session-sticky", {"key": "tenant", "max_idle_s": 2}),
    ("session-sticky", {"assignment": "random"}),
    ("session-sticky", {"spill_load_factor": 1, "after_spill": "move"}),
    ("kv-aware", {"temperature": 1, "event_delay_s": 2}),
    ("kv-aware", {"kv_events": False, "predicted_ttl_s": 3}),
    ("kv-aware", {"predicted_ttl_s": 3, "host_credit": 0, "storage_credit": 1}),
    ("scored", {"prefix_weight": 0}),
    ("scored", {"kv_events": False, "max_prefix_tokens": 20, "queue_weight": 0}),
    ("kv-aware", {"track_prefill_tokens": False, "track_active_blocks": False}),
]


class TestRouters(RouterContract):
    """All of them, with defaults and with other parameters."""

    @pytest.fixture(params=VARIED, ids=str)
    def make_router(self, request, router_of):
        kind, parameters = request.param
        return lambda: router_of(kind, **parameters)


def test_routers_have_a_section_each_with_their_parameters():
    """The table's names are the scenario's kinds; a section gives what its router takes."""
    assert tuple(ROUTERS) == ROUTER_KINDS
    for kind, factory in ROUTERS.items():
        section = ADAPTER.validate_python(kind)
        drawn = {"random"} if section.draws else set()
        takes = inspect.signature(factory).parameters
        required = {name for name, one in takes.items() if one.default is one.empty}
        assert required == section.parameters().keys() | drawn
