"""What every eviction policy must do."""

from collections.abc import Callable, Iterator

import numpy as np

from sim.core.tokens import stream_token_ids
from sim.engine.page_pool import PageCounts
from sim.sglang.cache.eviction import LeafQueue
from sim.sglang.cache.prefix_cache import PrefixMatch
from sim.sglang.cache.radix_cache import RadixCache
from sim.sglang.cache.radix_node import RadixNode
from sim.sglang.config import SchedulerConfig
from sim.sglang.user_rules import EVICTION, guarded_eviction
from sim.testing.contracts.contract import Contract
from sim.user.objects import UserObject

MakeLeaves = Callable[[], LeafQueue]
_NUM_PROMPTS = 40
_PROMPT_TOKENS = 24


def _used_cache(leaves: LeafQueue, seed: int) -> RadixCache:
    """A cache with branches, into which prompts of three families were inserted, some twice."""
    rng = np.random.default_rng(seed)
    pool = PageCounts(10_000, 1)
    cache = RadixCache(pool, leaves)
    for prompt in range(_NUM_PROMPTS):
        shared = int(rng.integers(1, _PROMPT_TOKENS))
        own = int(rng.integers(0, _NUM_PROMPTS // 2))
        ids = np.concatenate(
            [
                stream_token_ids(prompt % 3, 0, shared),
                stream_token_ids(100 + own, 0, _PROMPT_TOKENS - shared),
            ]
        )
        found = cache.match(ids, len(ids)).num_tokens
        pool.promise(len(ids) - found)
        node, _ = cache.insert(ids, found, pool.redeem(len(ids) - found))
        cache.count_use(node, 0)
    return cache


def _nodes(node: RadixNode) -> Iterator[RadixNode]:
    for child in node.children.values():
        yield child
        yield from _nodes(child)


class EvictionContract(Contract):
    """Fixture `make_leaves: Callable[[], LeafQueue]`."""

    fixture = "make_leaves"
    kind = EVICTION

    def context(self) -> tuple[object, ...]:
        return (SchedulerConfig(max_total_tokens=1_000),)

    def guarded(self, user: UserObject) -> LeafQueue:
        return guarded_eviction(user)

    def test_eviction_takes_leaves_by_rank(self, make_leaves: MakeLeaves) -> None:
        """Every unlocked leaf once, none before one of lower rank."""
        for seed in range(3):
            leaves = make_leaves()
            cache = _used_cache(leaves, seed)
            waiting = [node for node in _nodes(cache.root) if not node.children]
            while waiting:
                leaf = leaves.pop()
                assert leaf in waiting
                assert leaves.rank(leaf) == min(map(leaves.rank, waiting))
                waiting.remove(leaf)
            assert leaves.pop() is None

    def test_eviction_frees_what_is_asked_for(self, make_leaves: MakeLeaves) -> None:
        """Until nothing is left; nodes in use stay."""
        cache = _used_cache(make_leaves(), 4)
        used = next(node for node in _nodes(cache.root) if not node.children)
        cache.lock(used)
        while cache.evictable_tokens:
            before = cache.evictable_tokens
            assert cache.evict(10) == before - cache.evictable_tokens >= min(10, before)
        assert used.on_device
        assert cache.protected_tokens == used.end

    def test_eviction_asking_for_a_rank_changes_nothing(self, make_leaves: MakeLeaves) -> None:
        """A node that nothing uses keeps its rank, and two equal caches evict the same nodes."""
        one, other = make_leaves(), make_leaves()
        cache, _ = _used_cache(one, 5), _used_cache(other, 5)
        for node in _nodes(cache.root):
            rank = one.rank(node)
            assert one.rank(node) == rank
        evicted = [[leaves.pop() for _ in range(10)] for leaves in (one, other)]
        ends = [[node and (node.rank, node.end) for node in nodes] for nodes in evicted]
        assert ends[0] == ends[1]

    def test_eviction_rank_never_falls(self, make_leaves: MakeLeaves) -> None:
        """A use raises a node's rank or leaves it, so that no queued rank is too high."""
        leaves = make_leaves()
        cache = _used_cache(leaves, 6)
        for node in list(_nodes(cache.root)):
            before = leaves.rank(node)
            cache.touch(PrefixMatch(node))
            cache.count_use(node, 0)
            assert leaves.rank(node) >= before
