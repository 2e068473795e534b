"""KV-aware routing: costs as the rules have them, and what the router keeps account of."""

from collections import Counter

import pytest
from pydantic import TypeAdapter

from sim.core.block_keys import BlockKeys
from sim.core.errors import InputError
from sim.des.deployment import Deployment
from sim.des.live import LiveServers
from sim.des.routers.kv_aware import ActiveWork
from sim.des.routers.kv_index import Hits
from sim.des.routers.table import make_router
from sim.metrics.summary import request_table
from sim.scenario.router_section import RouterConfig
from sim.testing.contracts.traffic import FakeReplica, arriving
from sim.vllm.cache.single_type_manager import KVCacheSpec
from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.listener import SilentListener
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

BLOCK = 16


def keys_of(spec):
    return BlockKeys(BLOCK).of(spec.prompt.token_ids()).tolist()


def connected(router, *cached):
    """The router after each replica has stored these prompts."""
    for replica, prompts in enumerate(cached):
        feed = router.caches.index.feed(router.caches.index.add_cache(replica).device, lambda: 0)
        for spec in prompts:
            feed.stored(keys_of(spec))
    return router, [FakeReplica() for _ in cached]


def test_kv_aware_goes_where_the_longest_prefix_is(router_of):
    """Of idle replicas: 4 blocks beat 2, and 2 beat none."""
    long, short = arriving(0, (1, 64)), arriving(1, (1, 32))
    router, replicas = connected(router_of("kv-aware"), [], [short], [long])
    assert router.choose(arriving(2, (1, 64), (9, 40)), replicas) == 2
    router, replicas = connected(router_of("kv-aware"), [], [short], [])
    assert router.choose(arriving(2, (1, 64), (9, 40)), replicas) == 1


def test_kv_aware_cost_is_blocks_to_compute_and_blocks_of_running_requests(router_of):
    """By hand: what replica 0 has cached is worth 8 blocks, until it has more work than that.

    Each request has 12 blocks, of which replica 0 has cached 8. While none is over, replica 0 costs
    4 + 12 for the first; after it, 8 + 16 (4 blocks are computed, 4 new ones run), replica 1 24.
    """
    known = arriving(0, (1, 8 * BLOCK))
    requests = [arriving(row, (1, 8 * BLOCK), (row, 4 * BLOCK)) for row in range(1, 9)]
    router, replicas = connected(router_of("kv-aware"), [known], [])
    costs = []
    for spec in requests:
        keys = keys_of(spec)
        costs.append(
            [
                router._cost(len(spec.prompt), keys, work, Hits(cached))
                for work, cached in zip(router._work, (8, 0), strict=False)
            ]
        )
        router.choose(spec, replicas)
    assert costs[0] == []
    # 2nd: replica 0 has 4 blocks to compute and 12 running.
    assert costs[1] == [4 + 4 + 16, 12 + 12]
    assert costs[2] == [4 + 8 + 20, 12 + 12]
    assert Counter(router._replica_of.values()) == {0: 6, 1: 2}


def test_kv_aware_first_token_and_end_take_the_work_away(router_of):
    """A first token ends the prefill; the end of the request frees its blocks."""
    router, replicas = connected(router_of("kv-aware"), [], [])
    spec = arriving(1, (1, 100))
    assert router.choose(spec, replicas) == 0
    work = router._work[0]
    assert (work.prefill_tokens, work.num_blocks) == (100, 6)
    router.prefilled("r1")
    assert (work.prefill_tokens, work.num_blocks) == (0, 6)
    router.prefilled("r1")
    router.over("r1")
    assert (work.prefill_tokens, work.num_blocks) == (0, 0)
    router.over("r1")
    router.prefilled("of another router")


def test_active_work_shared_blocks_count_once():
    """Two prompts share two of their three blocks."""
    work = ActiveWork()
    work.add("a", [1, 2, 3], 10)
    assert work.num_blocks_with([1, 2, 4]) == 4
    work.add("b", [1, 2, 4], 5)
    assert (work.num_blocks, work.prefill_tokens) == (4, 15)
    work.over("a")
    assert (work.num_blocks, work.prefill_tokens) == (3, 5)


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({}, 1),
        ({"overlap_credit": 0}, 1),
        ({"prefill_load_scale": 20}, 0),
        ({"track_active_blocks": False}, 0),
        ({"track_active_blocks": False, "track_prefill_tokens": False}, 0),
    ],
)
def test_kv_aware_settings_weigh_work_against_the_cache(router_of, settings, chosen):
    """Replica 0 has the prefix, and 40 blocks of requests that have their first token."""
    known = arriving(0, (1, 8 * BLOCK))
    router, replicas = connected(router_of("kv-aware", **settings), [known], [])
    for row in range(2, 6):
        router.choose(arriving(row, (row, 20 * BLOCK)), replicas)
    for rid, replica in list(router._replica_of.items()):
        router.prefilled(rid)
        if replica == 1:
            router.over(rid)
    assert router.choose(arriving(9, (1, 8 * BLOCK), (5, BLOCK)), replicas) == chosen


def test_kv_aware_late_events_count_when_they_arrive(router_of):
    """Stored at 0 and under way for a second."""
    known = arriving(0, (1, 64))
    router, replicas = connected(router_of("kv-aware", event_delay_s=1), [], [known])
    router.choose(arriving(1, (7, 8)), replicas)
    for arrival_ns, chosen in ((10**9 - 1, 0), (10**9, 1)):
        spec = arriving(2, (1, 64), arrival_ns=arrival_ns)
        router.over("r1")
        assert router.choose(spec, replicas) == chosen
        router.over("r2")


def test_kv_aware_temperature_prefers_low_costs(router_of):
    """Costs 0 and 8 blocks apart: e**-2 of the choices at temperature 0.5, which are 12 %."""
    known = arriving(0, (1, 8 * BLOCK))
    router, replicas = connected(
        router_of("kv-aware", temperature=0.5, track_active_blocks=False), [], [known]
    )
    counts = Counter()
    for row in range(2000):
        spec = arriving(row, (1, 8 * BLOCK))
        counts[router.choose(spec, replicas)] += 1
        router.over(spec.rid)
    assert 0.10 < counts[0] / 2000 < 0.14


def test_kv_aware_equal_costs_go_to_the_lowest_load(router_of):
    """Dynamo draws; the first of these with the fewest unfinished requests is chosen here."""
    router, replicas = connected(router_of("kv-aware"), [], [], [])
    replicas[0].num_unfinished = 3
    assert router.choose(arriving(1, (1, 5)), replicas) == 1


def test_kv_aware_refuses_servers_that_report_no_events():
    """Of family vllm with groups of layers: one line, at the key."""
    config = VllmConfig(
        version="0.33.0", kv_cache_groups=(KVCacheSpec("sliding_window", 64),), num_gpu_blocks=100
    )
    workload = listed([scripted("a", (1, 20), output=2)])
    router = make_router(TypeAdapter(RouterConfig).validate_python("kv-aware"))
    with pytest.raises(InputError, match="the router needs cache events") as raised:
        serve(workload, config, [linear_latency()], router=router, check=False)
    assert raised.value.key == ("router",)


def test_kv_aware_follows_live_servers():
    """Servers without a log of their own tell of first tokens and ends, too."""
    router = make_router(TypeAdapter(RouterConfig).validate_python("kv-aware"))
    deployment = Deployment.of_one_kind(VllmConfig(), [linear_latency()] * 2, router=router)
    live = LiveServers(deployment, SilentListener(), keeps_log=False)
    live.submit(scripted("a", (1, 100), output=3))
    assert router._work[0].prefill_tokens == 100
    live.advance(10**8)
    assert (router._work[0].prefill_tokens, router._work[0].num_blocks) == (0, 0)
    assert len(router.caches.index.known(0)) == 1


def test_kv_aware_weighs_tiers(router_of):
    """Eight blocks in host memory are worth six; a device with seven has more, with five less."""
    prompt = arriving(0, (1, 8 * BLOCK))
    keys = keys_of(prompt)
    for num_on_device, chosen, rest in ((5, 0, 2 * BLOCK), (7, 1, BLOCK)):
        router, replicas = connected(router_of("kv-aware"), [], [])
        router.caches.index.known(0)[0].host.update(keys)
        router.caches.index.known(1)[0].device.update(keys[:num_on_device])
        assert router.choose(prompt, replicas) == chosen
        assert router._work[chosen].prefill_tokens == rest
    router, replicas = connected(router_of("kv-aware", host_credit=0), [], [])
    router.caches.index.known(0)[0].host.update(keys)
    router.caches.index.known(1)[0].device.update(keys[:1])
    assert router.choose(prompt, replicas) == 1


def test_kv_aware_predicts_no_more_than_a_server_can_find(router_of):
    """The last token is computed in any case, so the last block does not count."""
    prompt = arriving(0, (1, 8 * BLOCK))
    router, replicas = connected(router_of("kv-aware"), [prompt])
    router.choose(prompt, replicas)
    assert router.predicted_tokens == 7 * BLOCK
    router.choose(arriving(1, (1, 8 * BLOCK), (2, 1)), replicas)
    assert router.predicted_tokens == 8 * BLOCK
    router.choose(arriving(2, (5, 8 * BLOCK)), replicas)
    assert router.predicted_tokens == 0


def test_kv_aware_without_events_believes_what_it_sent_for_a_while(router_of):
    """Two seconds, counted from the latest prompt with the block."""
    router = router_of(
        "kv-aware", kv_events=False, predicted_ttl_s=2, prefill_load_scale=9, temperature=0
    )
    replicas = [FakeReplica(), FakeReplica()]
    expected = {0: 0, 10**9: 64, 3 * 10**9 - 1: 64, 6 * 10**9: 0}
    for row, (arrival_ns, predicted) in enumerate(expected.items()):
        spec = arriving(row, (1, 64), (row, 8), arrival_ns=arrival_ns)
        router.choose(spec, replicas)
        assert router.predicted_tokens == predicted
        router.over(spec.rid)


def test_kv_aware_predictions_close_the_gap_until_events_come(router_of):
    """Events take ten seconds; two requests of a session follow within one."""
    for ttl_s, predicted in ((None, 0), (5, 64)):
        router = router_of("kv-aware", event_delay_s=10, predicted_ttl_s=ttl_s)
        replicas = [FakeReplica(), FakeReplica()]
        router.choose(arriving(0, (1, 64)), replicas)
        router.choose(arriving(1, (1, 64), (2, 8), arrival_ns=10**9), replicas)
        assert router.predicted_tokens == predicted


def test_kv_aware_without_events_takes_servers_that_report_none():
    """Of family vllm with groups of layers; what is remembered is as much as a pool holds."""
    config = VllmConfig(
        version="0.33.0", kv_cache_groups=(KVCacheSpec("sliding_window", 64),), num_gpu_blocks=7
    )
    requests = [scripted(f"r{i}", (i // 2, 40), output=2, arrival_ns=i * 10**9) for i in range(8)]
    section = {"kind": "kv-aware", "kv_events": False}
    router = make_router(TypeAdapter(RouterConfig).validate_python(section))
    served = serve(listed(requests), config, [linear_latency()], router=router, check=False)
    assert served.log.predicted_tokens.tolist() == [0, 32] * 4
    assert len(router.caches._sent.held(0, 0)) == 6


def test_prediction_is_compared_with_what_was_found():
    """Of equal prompts the second is found as predicted; most of the third was evicted meanwhile.

    A pool of 11 blocks; what comes between needs 10, and leaves the first block.
    """
    beginnings = [(1, 64), (1, 64), (9, 130), (1, 64)]
    requests = [
        scripted(f"r{i}", begin, (20 + i, 20), output=2, arrival_ns=i * 10**9)
        for i, begin in enumerate(beginnings)
    ]
    section = {"kind": "kv-aware", "kv_events": False, "max_predicted_tokens": 1000}
    router = make_router(TypeAdapter(RouterConfig).validate_python(section))
    config = VllmConfig(num_gpu_blocks=12)
    served = serve(listed(requests), config, [linear_latency()], router=router)
    assert served.log.predicted_tokens.tolist() == [0, 64, 0, 64]
    assert served.log.requests.cached_tokens.tolist() == [0, 64, 0, 16]
    num_prompt, summary = 3 * 84 + 150, served.summary
    assert summary["predicted_hit_rate_pct"] == pytest.approx(100 * 128 / num_prompt)
    assert summary["false_hit_rate_pct"] == pytest.approx(100 * 48 / num_prompt)
    assert summary["unforeseen_hit_rate_pct"] == 0
    assert request_table(served.log)["predicted_tokens"].tolist() == [0, 64, 0, 64]
