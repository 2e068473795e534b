"""The radix cache against a list of cached sequences, by hypothesis' state machine.

The model keeps, for every cached token position, its sequence's prefix and the time of its last
use; the tree may split its nodes anywhere, if it evicts whole leaves, lowest rank first.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from sim.engine.page_pool import PageIds
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.tree.eviction import EVICTION_POLICIES
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.check import _check_tree
from tests.support.cache_machine import FINDS, LOCKS, CacheMachine, prefixes

_NUM_PAGES = 40

# Few symbols, so that sequences share prefixes of many lengths.
pages = st.lists(st.integers(0, 1), min_size=1, max_size=9)


class RadixMachine(CacheMachine):
    """Match, touch, lock, unlock, insert, evict."""

    symbols = pages

    def __init__(self):
        super().__init__()
        self.pool = PageIds(_NUM_PAGES, self.page_size)
        self.leaves = EVICTION_POLICIES[self.eviction](_NUM_PAGES * self.page_size)
        self.cache = RadixCache(self.pool, self.leaves)
        self.kv = KVCacheManager(self.pool, self.cache)
        self.cached: set[tuple[int, ...]] = set()

    # ---- the model -----------------------------------------------------------------------------

    def model_match(self, symbols):
        """How many pages of `symbols` are cached: all prefixes of a cached path are cached too."""
        num_pages = 0
        while num_pages < len(symbols) and tuple(symbols[: num_pages + 1]) in self.cached:
            num_pages += 1
        return num_pages

    def tree_nodes(self):
        """Every node of the tree with its whole path, in symbols."""
        stack = [(child, ()) for child in self.cache.root.children.values()]
        while stack:
            node, above = stack.pop()
            path = self.path_below(above, node)
            yield node, path
            stack.extend((child, path) for child in node.children.values())

    # ---- rules ---------------------------------------------------------------------------------

    @rule(symbols=pages, num_extra=st.integers(0, 3), data=st.data())
    def match_is_the_longest_cached_prefix(self, symbols, num_extra, data):
        token_ids = self.tokens(symbols, num_extra % self.page_size)
        limit = data.draw(st.integers(0, len(token_ids)))
        found = self.cache.match(token_ids, limit)
        expected = min(self.model_match(symbols), limit // self.page_size)
        assert found.num_tokens == expected * self.page_size

    @rule(target=FINDS, symbols=pages)
    def touch(self, symbols):
        token_ids = self.tokens(symbols)
        found = self.cache.match(token_ids, len(token_ids))
        node = self.cache.touch(found)
        assert node.end == found.num_tokens == self.model_match(symbols) * self.page_size
        return tuple(symbols), node

    def inserted(self, symbols, owned_from, node, num_cached):
        assert num_cached == self.model_match(symbols) * self.page_size
        self.cached |= prefixes(symbols)

    @rule(held=LOCKS, num_pages=st.integers(1, 9))
    def insert_nothing_to_cut(self, held, num_pages):
        """A checkpoint that splits its leaf at the prompt's end: no new pages."""
        path, node = held
        cut = path[:num_pages]
        if cut:
            token_ids = self.tokens(cut)
            self.cache.insert(token_ids, len(token_ids), self.pool.empty, node)
            end = self.cache.match(token_ids, len(token_ids))
            assert end.child is None
            assert end.num_tokens == len(token_ids)

    @rule(held=LOCKS, since=st.integers(0, 9))
    def count_use(self, held, since):
        """The uses of nodes on the path beyond `since` rise by one, no others; not for LRU."""
        path, node = held
        ranks = {p: self.leaves.rank(n) for n, p in self.tree_nodes()}
        self.cache.count_use(node, since * self.page_size)
        for other, at in self.tree_nodes():
            counted = path[: len(at)] == at and len(at) > since and self.eviction != "lru"
            assert (self.leaves.rank(other) > ranks[at]) == counted

    @rule(num_tokens=st.integers(1, 200))
    def evict(self, num_tokens):
        ranks = {path: self.leaves.rank(node) for node, path in self.tree_nodes()}
        num_free, evictable = self.pool.num_free_pages, self.cache.evictable_tokens
        num_freed = self.cache.evict(num_tokens)
        assert (self.pool.num_free_pages - num_free) * self.page_size == num_freed
        assert min(num_tokens, evictable) <= num_freed <= evictable
        left = {path for _, path in self.tree_nodes()}
        self.check_order(ranks, set(ranks) - left, num_tokens)
        gone = set(ranks) - left
        self.cached = set().union(*map(prefixes, left))
        assert not any(self.is_locked(path) for path in gone)

    def check_order(self, ranks, gone, num_tokens):
        """Replay: take the unlocked leaf of lowest rank until enough is freed, nothing else."""
        alive, num_freed, expected = dict(ranks), 0, set()
        while num_freed < num_tokens:
            leaves = [
                path
                for path in alive
                if not self.is_locked(path)
                and not any(len(o) > len(path) and o[: len(path)] == path for o in alive)
            ]
            if not leaves:
                break
            lowest = min(leaves, key=alive.__getitem__)
            above = max((len(o) for o in alive if o != lowest and lowest[: len(o)] == o), default=0)
            num_freed += (len(lowest) - above) * self.page_size
            del alive[lowest]
            expected.add(lowest)
        assert gone == expected

    # ---- invariants ----------------------------------------------------------------------------

    @invariant()
    def the_tree_holds_what_the_model_does(self):
        paths = [path for _, path in self.tree_nodes()]
        assert set().union(*map(prefixes, paths)) == self.cached
        protected = sum(self.is_locked(prefix) for prefix in self.cached)
        assert self.cache.protected_tokens == protected * self.page_size
        assert self.cache.evictable_tokens == (len(self.cached) - protected) * self.page_size

    @invariant()
    def every_page_is_free_or_in_the_tree_once(self):
        ids = [page for node, _ in self.tree_nodes() for page in node.pages.ids.tolist()]
        assert len(set(ids)) == len(ids) == len(self.cached)
        assert len(ids) + self.pool.num_free_pages == _NUM_PAGES

    @invariant()
    def the_tree_is_sound(self):
        _check_tree(self.kv)

    @invariant()
    def no_two_nodes_were_used_at_once(self):
        ticks = [node.last_used_tick for node, _ in self.tree_nodes()]
        assert len(set(ticks)) == len(ticks)


class RadixMachinePageSize4(RadixMachine):
    """Pages of four tokens."""

    page_size = 4


_SETTINGS = settings(stateful_step_count=40)

TestRadixCachePageSize1 = RadixMachine.TestCase
TestRadixCachePageSize1.settings = _SETTINGS
TestRadixCachePageSize4 = RadixMachinePageSize4.TestCase
TestRadixCachePageSize4.settings = _SETTINGS


class RadixMachineLfu(RadixMachine):
    """Fewest uses first."""

    eviction = "lfu"


class RadixMachineHitBenefit(RadixMachine):
    """Least benefit first; pages of four tokens."""

    page_size = 4
    eviction = "hit-benefit"


TestRadixCacheLfu = RadixMachineLfu.TestCase
TestRadixCacheLfu.settings = _SETTINGS
TestRadixCacheHitBenefit = RadixMachineHitBenefit.TestCase
TestRadixCacheHitBenefit.settings = _SETTINGS
