"""Admission of requests whose prefix is in host memory: which budget is charged how much."""

import pytest

from sim.engine.page_pool import PageCounts
from sim.sglang.cache.host.part import HostPart
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.config import SchedulerConfig
from sim.sglang.scheduler.prefill.adder import PrefillAdder, Verdict
from sim.sglang.scheduler.server import RowSteps, SglangServer
from sim.testing.contracts.policies import waiting_request

# 160 tokens of this stream are in host memory alone.
SEED, NUM_ON_HOST = 7, 160


class TieredPass:
    """One prefill pass; nothing is on the device."""

    def __init__(self, *, threshold=10, **settings):
        self.config = SchedulerConfig(page_size=16, **settings)
        num_pages = self.config.pool_tokens // 16
        self.pool = PageCounts(num_pages, 16)
        tier = HostCacheSettings(1600, 1, threshold)
        cache = RadixCache(self.pool)
        host = HostTree(cache, tier, PageCounts(100, 16))
        self.kv = KVCacheManager(self.pool, cache, (HostPart(host),))
        self.remember(NUM_ON_HOST)
        self.adder = PrefillAdder(SglangServer(self.config, self.kv, RowSteps(self.kv)), 0.0)

    def remember(self, num_tokens):
        """A request of `num_tokens` tokens came and finished."""
        kv = waiting_request("before", (SEED, num_tokens), limit=1).kv
        self.kv.lock_prefix(kv)
        self.kv.extend([(kv, 0, num_tokens)])
        self.kv.checkpoint(kv, num_tokens, prompt_len=num_tokens, seq_len=num_tokens)
        self.kv.release(kv, num_tokens)
        self.kv.cache.evict(num_tokens)
        assert self.pool.num_free_pages == self.pool.num_pages

    def offer(self, num_tokens, limit=1, seed=SEED):
        request = waiting_request("r", (seed, num_tokens), limit=limit)
        request.prefix_len = self.kv.find_prefix(request.kv, num_tokens, num_tokens - 1)
        return request, self.adder.add(request, has_chunked=False)


def test_loaded_tokens_spend_pages_but_no_prefill_tokens():
    """160 of 200 tokens come back: 48 are charged to the prefill budgets, 160 are pages."""
    one = TieredPass(max_total_tokens=1600, chunked_prefill_size=512, max_prefill_tokens=1000)
    request, verdict = one.offer(200)
    assert verdict is Verdict.CONTINUE
    assert (request.prefix_len, request.extend_len, request.loaded_len) == (160, 40, 160)
    assert one.pool.num_free_pages == 100 - 10
    assert one.adder.budget.input_tokens == 1000 - 48
    assert one.adder.budget.chunk_tokens == 512 - 48
    # Loaded tokens are locked, so they are not available; the rest is reserved.
    assert one.adder.budget.total_tokens == 1600 - 160 - (48 + 16 + 1)


def test_loaded_tokens_do_not_make_a_chunk():
    """Of 300 tokens only 140 are to compute, and the chunk takes 64 of them."""
    one = TieredPass(max_total_tokens=1600, chunked_prefill_size=64)
    request, _ = one.offer(300)
    assert (request.prefix_len, request.extend_len) == (160, 64)
    assert one.adder.new_chunked is request


@pytest.mark.parametrize(("pool", "admitted"), [(208, False), (224, True)])
def test_host_hit_counts_against_memory_like_tokens_to_compute(pool, admitted):
    """200 + 1 + 16 tokens have to be less than the pool, loaded or not."""
    one = TieredPass(max_total_tokens=pool)
    request, _ = one.offer(200)
    assert bool(one.adder.admitted) == admitted
    assert (request.kv.locked is not None) == admitted
    assert one.pool.num_free_pages * 16 == (pool - 160 if admitted else pool)


def test_host_hit_below_the_threshold_is_computed_again():
    """As if it were not there; the budgets pay for all of it."""
    one = TieredPass(threshold=161, max_total_tokens=1600, max_prefill_tokens=1000)
    request, _ = one.offer(200)
    assert (request.prefix_len, request.extend_len, request.loaded_len) == (0, 200, 0)
    assert one.adder.budget.input_tokens == 1000 - 208
    assert one.pool.num_free_pages == 100


def test_host_hit_below_the_threshold_may_have_to_be_cut():
    """Judged with its prefix on the device alone, the prompt is longer than a chunk."""
    one = TieredPass(threshold=161, max_total_tokens=1600, chunked_prefill_size=64)
    request, _ = one.offer(200)
    assert (request.extend_len, one.adder.new_chunked) == (64, request)


def test_aged_request_may_overdraw_reservations_but_not_pages():
    """What it would load is part of what has to fit."""
    for pool, admitted in ((208, False), (224, True)):
        one = TieredPass(max_total_tokens=pool)
        request = waiting_request("r", (SEED, 200), limit=4000)
        request.may_overdraw = True
        request.found(one.kv.find_prefix(request.kv, 200, 199))
        one.adder.add(request, has_chunked=False)
        assert bool(one.adder.admitted) == admitted
