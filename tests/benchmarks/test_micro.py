"""Speed of the operations that a scheduling pass does most often: `make bench`."""

import numpy as np
import pytest

from sim.core.request import RequestSpec
from sim.core.tokens import SegmentPrompt, stream_token_ids
from sim.engine.page_pool import PageCounts, PageIds
from sim.engine.request import OutputTokens
from sim.latency.aiconfigurator.deployment import ModelDeployment
from sim.latency.aiconfigurator.model import composed_latency
from sim.latency.config import Parallelism
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import SchedulerConfig
from sim.sglang.policies.policy import POLICIES, build_policy
from sim.sglang.request import RequestKV, SglangRequest
from sim.sglang.scheduler.waiting.queue import WaitingQueue
from tests.support.latency_steps import decode_step, extend_step

pytestmark = pytest.mark.benchmark_suite

PAGE_SIZE = 64
PROMPT_TOKENS = 12_032


def filled_cache(pool, num_prompts=40):
    """A cache of prompts, of which every four share their first half."""
    cache = RadixCache(pool)
    prompts = [
        np.concatenate(
            [stream_token_ids(i // 4, 0, PROMPT_TOKENS // 2), stream_token_ids(100 + i, 0, 6_016)]
        )
        for i in range(num_prompts)
    ]
    for prompt in prompts:
        num_pages = PROMPT_TOKENS // PAGE_SIZE
        pool.reserve(num_pages)
        cache.insert(prompt, 0, pool.take_reserved(num_pages))
    return cache, prompts


@pytest.mark.benchmark(group="match 12,032 tokens")
@pytest.mark.parametrize("again", [False, True], ids=["from the root", "where it ended last time"])
def test_match(benchmark, again):
    """A prompt found whole: compared token by token, or remembered."""
    cache, prompts = filled_cache(PageCounts(20_000, PAGE_SIZE))
    start = cache.match(prompts[7], PROMPT_TOKENS).node if again else None
    match = benchmark(cache.match, prompts[7], PROMPT_TOKENS, start)
    assert match.num_tokens == PROMPT_TOKENS


@pytest.mark.benchmark(group="insert and evict 12,032 tokens")
@pytest.mark.parametrize("pool_class", [PageCounts, PageIds])
def test_insert_and_evict(benchmark, pool_class):
    """A prompt goes in, the least recently used leaf comes out."""
    pool = pool_class(20_000, PAGE_SIZE)
    cache, _ = filled_cache(pool)
    prompt = stream_token_ids(999, 0, PROMPT_TOKENS)

    def insert_and_evict():
        pool.reserve(PROMPT_TOKENS // PAGE_SIZE)
        cache.insert(prompt, 0, pool.take_reserved(PROMPT_TOKENS // PAGE_SIZE))
        cache.evict(PROMPT_TOKENS // 2)

    benchmark(insert_and_evict)


@pytest.mark.benchmark(group="evict 12,032 tokens")
@pytest.mark.parametrize("pool_class", [PageCounts, PageIds])
def test_evict(benchmark, pool_class):
    """LeafQueue of a full cache go, the least recently used first, until a prompt has room."""

    def full_cache():
        cache, _ = filled_cache(pool_class(20_000, PAGE_SIZE))
        return (cache,), {}

    num_evicted = benchmark.pedantic(
        lambda cache: cache.evict(PROMPT_TOKENS), setup=full_cache, rounds=50
    )
    assert num_evicted >= PROMPT_TOKENS


@pytest.mark.benchmark(group="allocate 12,032 tokens")
@pytest.mark.parametrize("page_size", [1, PAGE_SIZE])
@pytest.mark.parametrize("pool_class", [PageCounts, PageIds])
def test_allocate(benchmark, pool_class, page_size):
    """Pages are reserved, named and given back, counted or with their ids."""
    pool = pool_class(2 * PROMPT_TOKENS // page_size, page_size)

    def allocate_and_free():
        pool.reserve(PROMPT_TOKENS // page_size)
        pool.free(pool.take_reserved(PROMPT_TOKENS // page_size))

    benchmark(allocate_and_free)
    assert pool.num_free_pages == pool.num_pages


@pytest.mark.benchmark(group="time of a step, mixture of experts, measured operators")
@pytest.mark.parametrize("kind", ["decode", "prefill"])
@pytest.mark.parametrize(("tp", "dp", "moe_ep"), [(4, 1, 1), (4, 1, 4), (1, 4, 4)])
def test_step_time(benchmark, tp, dp, moe_ep, kind):
    """64 decode rows, or two prefill rows, whose answers are known."""
    pytest.importorskip("aiconfigurator_core.sdk.engine")
    spread = Parallelism(tp, dp, tp * dp // moe_ep, moe_ep)
    deployment = ModelDeployment("Qwen/Qwen3-30B-A3B", None, "h200_sxm", "sglang", None, spread)
    latency = composed_latency(deployment, 0.0, ())
    step = decode_step(64, 130_000) if kind == "decode" else extend_step((0, 1_000), (500, 301))
    if dp > 1:
        num_tokens, prefills = step.num_tokens, kind == "prefill"
        step = step.in_group(dp * num_tokens, num_tokens, prefills=prefills)
    assert benchmark(latency.step_ns, step).device_ns > 0


@pytest.mark.benchmark(group="order 1,000 waiting requests")
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_order(benchmark, policy):
    """One pass over a long queue; LPM and HRRN leave more than 128 as they are."""
    config = SchedulerConfig(schedule_policy=policy, page_size=PAGE_SIZE)
    pool = PageCounts(20_000, PAGE_SIZE)
    kv = KVCacheManager(pool, RadixCache(pool))
    queue = WaitingQueue(config, kv, build_policy(config))
    no_outputs = OutputTokens(lambda n: np.empty(n, np.int64), lambda *part: np.empty(0, np.int64))
    for i in range(1_000):
        prompt = SegmentPrompt(((i % 50, 400), (1_000 + i, 200)))
        spec = RequestSpec(f"r{i}", 0, prompt, max_new_tokens=1 + i % 97)
        request_kv = RequestKV(prompt, no_outputs, pool.empty)
        queue.enter(SglangRequest(spec, request_kv, limit=spec.max_new_tokens))
    benchmark(queue.order, 0)
    assert len(queue) == 1_000
