"""What lfu and hit-benefit keep, against sums by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.tokens import SegmentPrompt, stream_token_ids
from sim.engine.page_pool import PageIds
from sim.engine.request import OutputTokens
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.eviction import HitBenefitLeafQueue, LfuLeafQueue, PriorityLeafQueue
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.request import RequestKV


class Desk:
    """Serves prompts one after the other: matches, computes and caches each."""

    def __init__(self, leaves):
        self.pool = PageIds(1000, 1)
        self.cache = RadixCache(self.pool, leaves)
        self.kv = KVCacheManager(self.pool, self.cache)

    def begin(self, *segments):
        """A request after prefill, whose prompt is these (seed, length) pieces."""
        prompt = SegmentPrompt(segments)
        request = RequestKV(prompt, OutputTokens(np.zeros, np.zeros), self.pool.empty)
        found = self.kv.find_prefix(request, len(prompt), len(prompt) - 1)
        self.kv.lock_prefix(request)
        self.kv.extend([(request, found, len(prompt) - found)])
        self.checkpoint(request, len(prompt))
        return request

    def checkpoint(self, request, num_tokens):
        self.kv.checkpoint(request, num_tokens, prompt_len=num_tokens, seq_len=num_tokens)

    def serve(self, *segments):
        request = self.begin(*segments)
        self.kv.release(request, request.protected_len)

    def found(self, *segments):
        ids = np.concatenate([stream_token_ids(seed, 0, n) for seed, n in segments])
        return self.cache.match(ids, len(ids)).num_tokens


def test_lfu_evicts_the_least_used_then_the_least_recent():
    """Three, two, two and one uses; recency decides between the twos only."""
    desk = Desk(LfuLeafQueue())
    for seed in (1, 1, 1, 2, 2, 3, 3, 4):
        desk.serve((seed, 10), (100, 1))
    whole = np.append(stream_token_ids(2, 0, 10), stream_token_ids(100, 0, 1))
    desk.cache.touch(desk.cache.match(whole, 11))
    left = []
    for _ in range(4):
        desk.cache.evict(11)
        left.append([seed for seed in (1, 2, 3, 4) if desk.found((seed, 10))])
    assert left == [[1, 2, 3], [1, 2], [1], []]


def test_lfu_request_counts_once_and_again_after_a_retraction():
    """A second checkpoint of the same tokens is no use; a second admission is."""
    desk = Desk(LfuLeafQueue())
    request = desk.begin((1, 10))
    node = request.locked
    desk.checkpoint(request, 10)
    assert node.use_score == (1, 0.0)
    desk.kv.release(request, 10)
    desk.serve((1, 10), (2, 5))
    assert node.use_score == (2, 0.0)
    assert next(iter(node.children.values())).use_score == (1, 0.0)


def test_cut_leaves_both_parts_with_the_worth_of_the_whole():
    """Whoever used the node used both parts of it."""
    desk = Desk(LfuLeafQueue())
    desk.serve((1, 10))
    desk.serve((1, 10))
    desk.serve((1, 4), (2, 3))
    upper = next(iter(desk.cache.root.children.values()))
    assert (upper.end, upper.use_score) == (4, (3, 0.0))
    assert sorted(child.use_score for child in upper.children.values()) == [(1, 0.0), (2, 0.0)]


def test_hit_benefit_survives_a_flood_that_lru_drowns_in():
    """A prefix hit five times outlives twenty later prompts that nobody repeats."""
    for leaves, kept in ((HitBenefitLeafQueue(1000), 50), (None, 0)):
        desk = Desk(leaves)
        for _ in range(5):
            desk.serve((1, 50), (100, 1))
        for seed in range(2, 22):
            desk.serve((seed, 40))
        desk.cache.evict(400)
        assert desk.found((1, 50)) == kept


def test_hit_benefit_forgets_what_was_popular_long_ago():
    """Four uses are worth less than a new one after two half-lives, more after none."""
    for half_life, kept in ((400, 50), (100, 0)):
        desk = Desk(HitBenefitLeafQueue(half_life))
        for _ in range(4):
            desk.serve((1, 50))
        for seed in range(2, 10):
            desk.serve((seed, 40))
        desk.cache.evict(300)
        assert desk.found((1, 50)) == kept


def test_hit_benefit_is_per_token_and_not_for_size():
    """Of a large leaf used twice and small ones used three times, the large one goes."""
    desk = Desk(HitBenefitLeafQueue(10_000))
    for _ in range(2):
        desk.serve((1, 300))
    for _ in range(3):
        for seed in range(2, 8):
            desk.serve((seed, 20))
    desk.cache.evict(100)
    assert desk.found((1, 300)) == 0
    assert all(desk.found((seed, 20)) == 20 for seed in range(2, 8))


def value(worth):
    return worth[1] * 2.0 ** worth[0]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(50, 500))
def test_worth_is_the_sum_of_the_weights_of_all_uses(sizes, half_life):
    """2 ** (time / half-life), linear in between, where time is the tokens inserted so far."""
    leaves = HitBenefitLeafQueue(half_life)
    root, time, expected = RadixNode.new_root(), 0, 0.0
    node = RadixNode(stream_token_ids(0, 0, sizes[0]), PageIds(1, 1).empty, sizes[0], root, 0)
    for number, size in enumerate(sizes):
        time += size
        if number:
            other = RadixNode(stream_token_ids(0, 0, size), PageIds(1, 1).empty, size, root, 0)
            leaves.count(other)
        leaves.count(node)
        weight = 2.0 ** (time // half_life) * (1 + time % half_life / half_life)
        expected += weight
        assert 1.0 <= node.use_score[1] < 2.0
        assert value(node.use_score) == pytest.approx(expected)
        if number:
            assert value(other.use_score) == pytest.approx(weight)


def test_hit_benefit_weights_never_overflow():
    """After ten thousand half-lives a hit still outweighs older ones."""
    leaves = HitBenefitLeafQueue(10)
    nodes = [RadixNode(stream_token_ids(0, 0, 1000), PageIds(1, 1).empty, 1000, None, 0)
             for _ in range(100)]  # fmt: skip
    for node in nodes:
        leaves.count(node)
    assert [node.use_score for node in nodes] == sorted(node.use_score for node in nodes)
    leaves.count(nodes[0])
    assert nodes[0].use_score == nodes[-1].use_score == (10_000, 1.0)


def test_heap_work_is_bounded_by_uses():
    """Each offer and each use costs at most one push, however they are spread: O(log n) each."""
    leaves = HitBenefitLeafQueue(1000)
    desk = Desk(leaves)
    num_served = 0
    for turn in range(200):
        desk.serve((turn % 23, 30), (turn % 7, 5))
        num_served += 1
        if turn % 3 == 0:
            desk.cache.evict(40)
    desk.cache.evict(10_000)
    # A request uses its leaf and its stem, and the uses of both rise.
    assert leaves._num_pushed <= 5 * num_served


def test_priority_of_less_than_a_page_is_that_of_what_is_fetched():
    """Such a prompt is in no node, but what a store brings below the root gets its priority."""
    pool = PageIds(100, 4)
    cache = RadixCache(pool, PriorityLeafQueue())
    kv = KVCacheManager(pool, cache)
    for priority, num_tokens in ((2, 8), (7, 3)):
        prompt = SegmentPrompt(((priority, num_tokens),))
        one = RequestKV(prompt, OutputTokens(np.zeros, np.zeros), pool.empty)
        one.priority = priority
        kv.find_prefix(one, num_tokens, num_tokens - 1)
        kv.lock_prefix(one)
        kv.extend([(one, 0, num_tokens)])
        kv.checkpoint(one, num_tokens, prompt_len=num_tokens, seq_len=num_tokens)
    fetched = cache.add_copy(cache.root, stream_token_ids(9, 0, 4))
    inserted = next(iter(cache.root.children.values()))
    assert (inserted.use_score[0], fetched.use_score[0]) == (2, 7)
