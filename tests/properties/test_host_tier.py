"""INV-14, and what must not depend on host memory, on random traffic with re-used prefixes."""

import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.page_pool import PageIds
from sim.latency.wrappers import LoadingLatency, LoadTimes
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.config import SchedulerConfig
from sim.workload.workload import Turn, listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

MS = 1_000_000


@st.composite
def returning_traffic(draw, num_requests=25):
    """Requests of a few prefixes, some of them answered before: more KV than the pool holds."""
    arrival_ns, requests = 0, []
    for i in range(num_requests):
        arrival_ns += draw(st.sampled_from((0, 5 * MS, 60 * MS)))
        segments = [(1 + draw(st.integers(0, 3)), draw(st.sampled_from((40, 80, 100))))]
        if draw(st.booleans()):
            segments.append((20 + draw(st.integers(0, 2)), draw(st.sampled_from((10, 40)))))
        segments.append((100 + draw(st.integers(0, 30)), draw(st.integers(1, 20))))
        output = draw(st.integers(1, 20))
        requests.append(
            scripted(f"r{i}", *segments, output=output, arrival_ns=arrival_ns, output_seed=1 << 20)
        )
    return requests


@st.composite
def tiered_configs(draw):
    """A pool for one or two requests; host memory from one page to more than is needed."""
    page_size = draw(st.sampled_from((1, 4, 16)))
    capacity = draw(st.sampled_from((32, 200, 600, 100_000)))
    return SchedulerConfig(
        page_size=page_size,
        max_total_tokens=draw(st.sampled_from((208, 320, 400))),
        chunked_prefill_size=draw(st.sampled_from((32, 64, -1))),
        schedule_policy=draw(
            st.sampled_from(("fcfs", "lpm", "dfs-weight", "shortest-prefill-first"))
        ),
        enable_mixed_chunk=draw(st.booleans()),
        disable_overlap_schedule=draw(st.booleans()),
        radix_eviction_policy=draw(st.sampled_from(("lru", "lfu", "hit-benefit"))),
        host_cache=HostCacheSettings(
            capacity // page_size * page_size,
            draw(st.sampled_from((None, 1, 2))),
            draw(st.sampled_from((0, 10))),
            draw(st.sampled_from((0.0, 1000.0, 300_000.0))),
        ),
    )


def latencies():
    return [LoadingLatency(linear_latency(), LoadTimes(1000.0, 4))]


@given(returning_traffic(), tiered_configs())
def test_host_tier_any_traffic_is_sound_and_the_same_in_every_mode(requests, config):
    """INV-14 after every step; step by step, in one go, and with named pages: the same bytes."""
    workload = listed(requests)
    checked = serve(workload, config, latencies(), fast_forward=False, check=True)
    assert serve(workload, config, latencies(), check=False).text == checked.text
    assert serve(workload, config, latencies(), check=False, pool=PageIds).text == checked.text
    assert set(checked.log.requests.status) == {"finished"}
    capacity = config.host_cache.capacity_tokens
    assert all(0 <= step["host_used"] <= capacity for step in checked.steps)
    for step in checked.steps:
        loaded = dict(step["loaded"])
        assert sum(loaded.values()) % config.page_size == 0
        assert set(loaded) <= {rid for rid, _, _ in step["prefill"]}
        assert all(loaded.get(rid, 0) <= prefix for rid, prefix, _ in step["prefill"])


@given(returning_traffic(), tiered_configs())
def test_host_tier_that_never_copies_decides_like_none(requests, config):
    """Nothing is ever used often enough: the same steps at the same times."""
    never = replace(config, host_cache=replace(config.host_cache, write_after_uses=1 << 30))
    workload = listed(requests)
    tiered = serve(workload, never, latencies(), check=False)
    plain = serve(workload, replace(config, host_cache=None), latencies(), check=False)
    for step in tiered.steps:
        assert (step["loaded"], step["host_used"]) == ([], 0)
    extra = {"loaded", "host_used", "host_cached_at_admit"}
    lines = [json.loads(line) for line in tiered.text.splitlines()]
    stripped = [{k: v for k, v in line.items() if k not in extra} for line in lines]
    assert stripped == [json.loads(line) for line in plain.text.splitlines()]


def one_after_the_other(requests):
    """A single client, so that no prefix is being computed when another request is matched."""
    turns = [Turn(0, r.sent_at(0)) for r in requests]
    return listed((), [turns])


@given(returning_traffic(), tiered_configs(), st.sampled_from((None, 1)))
def test_huge_host_memory_finds_what_a_huge_pool_finds(requests, config, uses):
    """Requests one at a time: whatever was ever computed is in one of the two tiers."""
    huge = replace(config, host_cache=HostCacheSettings(10**6, uses, 0))
    workload = one_after_the_other(requests)
    cached = [
        serve(workload, one, latencies(), check=False).log.requests.cached_tokens
        for one in (huge, replace(config, host_cache=None, max_total_tokens=10**6))
    ]
    assert cached[0].tolist() == cached[1].tolist()
    without = serve(workload, replace(config, host_cache=None), latencies(), check=False)
    assert np.all(cached[0] >= without.log.requests.cached_tokens)
