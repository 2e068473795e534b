"""Routing by scores, as llm-d's router reckons them."""

import pytest
from pydantic import TypeAdapter

from sim.core.block_keys import BlockKeys
from sim.des.routers.scored import ServerMetrics
from sim.des.routers.table import make_router
from sim.scenario.router_section import RouterConfig
from sim.testing.contracts.traffic import FakeReplica, arriving
from sim.vllm.config import VllmConfig
from sim.workload.workload import listed
from tests.support.serve import linear_latency, serve
from tests.support.workloads import scripted

BLOCK = 16


def connected(router, metrics, *cached):
    """The router, where replicas have these metrics and have stored these prompts."""
    for number, (device, host) in enumerate(cached):
        known = router.caches.index.add_cache(number)
        for held, spec in ((known.device, device), (known.host, host)):
            if spec is not None:
                held.update(BlockKeys(BLOCK).of(spec.prompt.token_ids()).tolist())
    router.read_metrics = lambda: metrics
    return [FakeReplica() for _ in metrics]


def test_scored_weighs_the_cache_against_queue_and_kv_usage(router_of):
    """Half of the prompt is worth 2 x 0.5; the queue 1 - 1/4 of the way, the KV 0.1 less."""
    known = arriving(0, (1, 4 * BLOCK))
    prompt = arriving(1, (1, 4 * BLOCK), (2, 4 * BLOCK))
    for waiting, chosen in ((1, 0), (4, 1)):
        metrics = [ServerMetrics(waiting, 0.3), ServerMetrics(0, 0.2), ServerMetrics(4, 0.0)]
        router = router_of("scored")
        replicas = connected(router, metrics, (known, None), (None, None), (None, None))
        assert router.choose(prompt, replicas) == chosen
        assert router.predicted_tokens == (4 * BLOCK if chosen == 0 else 0)


@pytest.mark.parametrize(("host_credit", "chosen"), [(0.8, 0), (0.5, 1), (0, 1)])
def test_scored_blocks_in_host_memory_are_worth_less(router_of, host_credit, chosen):
    """Eight of ten blocks in host memory against six on the device."""
    prompt = arriving(0, (1, 8 * BLOCK), (2, 2 * BLOCK))
    router = router_of("scored", host_credit=host_credit)
    long, short = arriving(1, (1, 8 * BLOCK)), arriving(2, (1, 6 * BLOCK))
    replicas = connected(router, [ServerMetrics(0, 0.5)] * 2, (None, long), (short, None))
    assert router.choose(prompt, replicas) == chosen


def test_scored_compares_so_much_of_a_prompt_and_no_more(router_of):
    """Of the first four blocks both have all; then the queue decides."""
    prompt = arriving(0, (1, 8 * BLOCK))
    metrics = [ServerMetrics(1, 0.5), ServerMetrics(0, 0.5)]
    for most, chosen in ((None, 0), (4 * BLOCK, 1)):
        router = router_of("scored", max_prefix_tokens=most, prefix_weight=9)
        beginning = arriving(1, (1, 4 * BLOCK))
        replicas = connected(router, metrics, (prompt, None), (beginning, None))
        assert router.choose(prompt, replicas) == chosen


def test_scored_reads_metrics_once_in_an_interval(router_of):
    """What changes in between is not seen: three requests in a burst follow one another."""
    router = router_of("scored", prefix_weight=0, metrics_interval_s=0.05)
    seen = [[ServerMetrics(0, 0.0), ServerMetrics(9, 0.9)]]
    replicas = [FakeReplica(), FakeReplica()]
    router.read_metrics = lambda: seen[-1]
    for arrival_ns, chosen in ((0, 0), (1, 0), (49_999_999, 0), (50_000_000, 1)):
        assert router.choose(arriving(0, (1, 9), arrival_ns=arrival_ns), replicas) == chosen
        seen.append([ServerMetrics(9, 0.9), ServerMetrics(0, 0.0)])
    assert router.predicted_tokens is None


def test_scored_draws_among_equal_scores(router_of):
    """All of them, if nothing is known."""
    router = router_of("scored", prefix_weight=0)
    replicas = [FakeReplica() for _ in range(3)]
    assert {router.choose(arriving(i, (1, 9)), replicas) for i in range(40)} == {0, 1, 2}


def test_scored_sees_queues_and_pools_of_real_servers():
    """Long requests fill the first replicas; the next one goes where the pool is free."""
    router = make_router(TypeAdapter(RouterConfig).validate_python("scored"), seed=3)
    requests = [
        scripted(f"r{i}", (i, 200), output=60, arrival_ns=i * 100_000_000) for i in range(3)
    ]
    config = VllmConfig(num_gpu_blocks=100, max_num_seqs=1)
    served = serve(listed(requests), config, [linear_latency()] * 3, router=router)
    assert sorted(served.log.requests.replica.tolist()) == [0, 1, 2]
