"""Servers that share a store find what the others have written, and wait for each other."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.des.routers.router import RoundRobin
from sim.engine.store import StoreSettings
from sim.sglang.cache.settings import (
    HostCacheSettings,
    StateSettings,
    StorageSettings,
    WindowSettings,
)
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import listed
from tests.properties.test_host_tier import latencies, returning_traffic
from tests.support.serve import serve
from tests.support.workloads import scripted

MS = 1_000_000
STORE = StoreSettings(read_ns_per_page=1000.0, write_ns_per_page=1000.0, is_shared=True)
CONFIG = SchedulerConfig(
    max_total_tokens=400,
    host_cache=HostCacheSettings(
        800, 1, 0, storage=StorageSettings(STORE, "wait_complete", prefetch_threshold=1)
    ),
)


def with_store(**settings):
    host = CONFIG.host_cache
    storage = replace(host.storage, store=replace(STORE, **settings))
    return replace(CONFIG, host_cache=replace(host, storage=storage))


def cached(config, *, num_servers=2, gap_ms=200):
    """Cached tokens of two requests with the same prompt, the second one long after the first."""
    requests = [scripted(f"r{i}", (1, 100), output=2, arrival_ns=i * gap_ms * MS) for i in range(2)]
    servers = [latencies()[0] for _ in range(num_servers)]
    served = serve(listed(requests), config, servers, router=RoundRobin())
    return served.log.requests.cached_tokens.tolist()


def test_shared_store_has_what_another_server_has_written():
    """The second server fetches the prompt of the first, but for its last token."""
    assert cached(with_store()) == [0, 99]
    assert cached(with_store(is_shared=False)) == [0, 0]


@pytest.mark.parametrize("is_shared", [True, False])
def test_ranks_of_a_group_have_one_store(is_shared):
    """The second rank fetches what the first has written; another group does, if all share."""
    requests = [scripted(f"r{i}", (1, 100), output=2, arrival_ns=i * 200 * MS) for i in range(4)]
    groups = [tuple(latencies() * 2)] * 2
    config = with_store(is_shared=is_shared)
    served = serve(listed(requests), config, groups, router=RoundRobin())
    cached = 99 if is_shared else 0
    assert served.log.requests.cached_tokens.tolist() == [0, cached, 99, 99]


@pytest.mark.parametrize(
    "parts",
    [
        {"window": WindowSettings(20, 400, 8)},
        {"states": StateSettings(40, 0, 1, 1, 1), "disable_overlap_schedule": True},
    ],
    ids=["windows", "states"],
)
@pytest.mark.parametrize("fails", [False, True])
def test_shared_store_has_what_the_end_of_a_prefix_needs(parts, fails):
    """A longer prompt finds all of the one that another server has served, or nothing.

    If one page of it cannot be read, all that was read is of no use.
    """
    config = with_store(failed_read_share=0.01 if fails else 0.0, seed=1)
    host = replace(config.host_cache, full_share=0.5, state_tokens=30.0, ratio=2.0)
    config = replace(config, host_cache=host, max_running_requests=8, **parts)
    requests = [
        scripted("r0", (1, 100), output=2),
        scripted("r1", (1, 100), (2, 50), output=2, arrival_ns=200 * MS),
    ]
    servers = [latencies()[0] for _ in range(2)]
    served = serve(listed(requests), config, servers, router=RoundRobin())
    assert served.log.requests.host_cached_tokens.tolist() == [0, 0 if fails else 100]


def test_store_without_bandwidth_is_no_store():
    """Nothing is written before the second request, so it finds nothing."""
    assert cached(with_store(write_ns_per_page=1e9)) == [0, 0]


@given(returning_traffic(), st.sampled_from((0.0, 20_000.0, 300_000.0)))
def test_shared_store_is_the_same_in_every_mode(requests, ns_per_page):
    """Step by step with all invariants checked, and in one go: the same bytes."""
    config = with_store(read_ns_per_page=ns_per_page, write_ns_per_page=ns_per_page)
    workload = listed(requests)
    servers = [latencies()[0] for _ in range(3)]
    checked = serve(workload, config, servers, fast_forward=False, router=RoundRobin())
    fast = serve(workload, config, servers, check=False, router=RoundRobin())
    assert fast.text == checked.text
    assert set(checked.log.requests.status) == {"finished"}
