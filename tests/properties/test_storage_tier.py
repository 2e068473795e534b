"""INV-14 with a store below host memory, and what must not depend on the store."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.page_pool import PageIds
from sim.engine.store import StoreSettings
from sim.sglang.cache.settings import HostCacheSettings, StorageSettings
from sim.workload.workload import listed
from tests.properties.test_host_tier import (
    latencies,
    one_after_the_other,
    returning_traffic,
    tiered_configs,
)
from tests.support.serve import serve


@st.composite
def stores(draw, page_size):
    return StoreSettings(
        capacity_pages=draw(st.sampled_from((None, 1, 20, 200))),
        lookup_ns=draw(st.sampled_from((0.0, 50_000.0, 8e6))),
        read_latency_ns=draw(st.sampled_from((0.0, 20_000.0))),
        write_latency_ns=draw(st.sampled_from((0.0, 20_000.0))),
        read_ns_per_page=draw(st.sampled_from((0.0, 100.0, 90_000.0))) * page_size,
        write_ns_per_page=draw(st.sampled_from((0.0, 100.0, 90_000.0))) * page_size,
        pages_at_once=draw(st.sampled_from((1, 8, 128))),
        failed_read_share=draw(st.sampled_from((0.0, 0.1))),
        failed_write_share=draw(st.sampled_from((0.0, 0.1))),
    )


@st.composite
def stored_configs(draw):
    """A small pool above small host memory above a store."""
    config = draw(tiered_configs())
    storage = draw(storage_settings(config.page_size))
    return replace(config, host_cache=replace(config.host_cache, storage=storage))


@st.composite
def storage_settings(draw, page_size):
    return StorageSettings(
        draw(stores(page_size)),
        prefetch_policy=draw(st.sampled_from(("best_effort", "wait_complete", "timeout"))),
        prefetch_threshold=draw(st.sampled_from((1, 16, 64))),
        timeout_ns=draw(st.sampled_from((0.0, 5e6, 1e9))),
        timeout_ns_per_page=draw(st.sampled_from((0.0, 1e5))),
        retry_interval=draw(st.sampled_from((0, 1, 8))),
        most_lookups=draw(st.sampled_from((0, 2, 8))),
    )


def write_through(config):
    """Under write-back SGLang may run out of memory (docs/explanation/storage.md)."""
    host = config.host_cache
    uses = 1 if host.write_after_uses is None else host.write_after_uses
    return replace(config, host_cache=replace(host, write_after_uses=uses))


@given(returning_traffic(), stored_configs().map(write_through))
def test_storage_any_traffic_is_sound_and_the_same_in_every_mode(requests, config):
    """INV-14 after every step; step by step, in one go, and with named pages: the same bytes."""
    workload = listed(requests)
    checked = serve(workload, config, latencies(), fast_forward=False, check=True)
    assert serve(workload, config, latencies(), check=False).text == checked.text
    assert serve(workload, config, latencies(), check=False, pool=PageIds).text == checked.text
    assert set(checked.log.requests.status) == {"finished"}


@given(returning_traffic(), stored_configs())
def test_store_that_keeps_nothing_serves_as_no_store_does(requests, config):
    """All writes fail and nothing is held back: only the waiting requests' prefixes are marked."""
    storage = config.host_cache.storage
    nothing = replace(
        storage,
        store=replace(storage.store, failed_write_share=1.0),
        prefetch_policy="best_effort",
    )
    config = write_through(config)
    stored = replace(config, host_cache=replace(config.host_cache, storage=nothing))
    bare = replace(config, host_cache=replace(config.host_cache, storage=None))
    workload = one_after_the_other(requests)
    cached = [
        serve(workload, each, latencies(), check=False).log.requests.cached_tokens
        for each in (stored, bare)
    ]
    assert cached[0].tolist() == cached[1].tolist()


@given(returning_traffic(), stored_configs())
def test_endless_store_finds_what_endless_host_memory_finds(requests, config):
    """Requests one at a time that wait for their fetches; host memory is twice the pool."""
    page_size = config.page_size
    config = replace(config, max_total_tokens=208)
    endless = StorageSettings(
        StoreSettings(lookup_ns=1000.0, read_ns_per_page=10.0 * page_size, write_ns_per_page=10.0),
        prefetch_policy="wait_complete",
        prefetch_threshold=1,
    )
    workload = one_after_the_other(requests)
    host = HostCacheSettings(416, 1, 0, storage=endless)
    cached = [
        serve(workload, each, latencies(), check=False).log.requests.cached_tokens
        for each in (
            replace(config, host_cache=host),
            replace(config, host_cache=HostCacheSettings(10**6, 1, 0)),
        )
    ]
    assert cached[0].tolist() == cached[1].tolist()
    without = serve(workload, replace(config, host_cache=None), latencies(), check=False)
    assert np.all(cached[0] >= without.log.requests.cached_tokens)
