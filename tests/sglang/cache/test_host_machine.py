"""The radix cache with host memory against two sets of prefixes, by hypothesis' state machine.

The model keeps which prefixes are on the device and which have a copy in host memory. The order of
eviction is not checked here, but with the plain cache. After every step the test checks what may be
evicted, where it goes, and what can still be found.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from sim.engine.page_pool import PageIds
from sim.sglang.cache.host.part import HostPart
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.manager import KVCacheManager
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.cache.tree.eviction import EVICTION_POLICIES
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.check import _check_tree, check_host_memory
from tests.support.cache_machine import FINDS, LOCKS, CacheMachine, prefixes

_NUM_PAGES = 20

# Paths that share much, cut at many places.
pages = st.builds(
    lambda num_same, rest: [0] * num_same + rest,
    st.integers(0, 7),
    st.lists(st.integers(0, 1), min_size=1, max_size=4),
)


class HostMachine(CacheMachine):
    """All operations of a server on its cache, in both tiers."""

    symbols = pages
    write_after_uses: int | None = 1
    num_host_pages = 15
    threshold = 0

    def __init__(self):
        super().__init__()
        self.pool = PageIds(_NUM_PAGES, self.page_size)
        self.host_pool = PageIds(self.num_host_pages, self.page_size)
        num_tokens = _NUM_PAGES * self.page_size
        self.cache = RadixCache(self.pool, EVICTION_POLICIES[self.eviction](num_tokens))
        tier = HostCacheSettings(
            self.num_host_pages * self.page_size, self.write_after_uses, self.threshold
        )
        self.host = HostTree(self.cache, tier, self.host_pool)
        self.loads = HostPart(self.host)
        self.kv = KVCacheManager(self.pool, self.cache)
        self.device: set[tuple[int, ...]] = set()
        self.copies: set[tuple[int, ...]] = set()

    # ---- the model -----------------------------------------------------------------------------

    def tree(self):
        """Every node of both tiers with its whole path, in symbols."""
        root = self.cache.root
        stack = [(n, ()) for n in (*root.children.values(), *root.host.children.values())]
        while stack:
            node, above = stack.pop()
            path = self.path_below(above, node)
            yield node, path, len(above)
            below = (*node.children.values(), *node.host.children.values())
            stack.extend((child, path) for child in below)

    def found(self):
        """Prefixes on the device and prefixes with a copy, as the tree has them."""
        device, copies = set(), set()
        for node, path, start in self.tree():
            own = {path[: n + 1] for n in range(start, len(path))}
            device |= own if node.on_device else set()
            copies |= own if node.host.pages is not None else set()
        return device, copies

    def model_match(self, symbols):
        """Pages on the device, and pages beyond them that are in host memory."""
        num_device = num_all = 0
        while tuple(symbols[: num_device + 1]) in self.device and num_device < len(symbols):
            num_device += 1
        num_all = num_device
        while tuple(symbols[: num_all + 1]) in self.copies and num_all < len(symbols):
            num_all += 1
        return num_device, num_all - num_device

    def settle(self):
        """Set the model to the tree after a step that may have evicted, if the change is allowed.

        Locked prefixes must stay on the device. Prefixes that left it must be in host memory,
        unless they had no copy (write-through) or there was no room for one (write-back). Copies
        may be removed only if room was needed.
        """
        device, copies = self.found()
        gone = self.device - device
        assert not any(self.is_locked(prefix) for prefix in gone)
        assert not device - self.device
        if self.write_after_uses is not None:
            assert copies == self.copies
        elif self.num_host_pages >= 500:
            assert gone <= copies
            assert self.copies <= copies
        self.device, self.copies = device, copies

    # ---- rules ---------------------------------------------------------------------------------

    @rule(symbols=pages, data=st.data())
    def match_is_the_longest_prefix_of_each_tier(self, symbols, data):
        token_ids = self.tokens(symbols)
        limit = data.draw(st.integers(0, len(token_ids)))
        before = self.found()
        match = self.cache.match(token_ids, limit)
        num_device, num_host = self.model_match(symbols[: limit // self.page_size])
        assert match.num_tokens == num_device * self.page_size
        assert match.num_host_tokens == num_host * self.page_size
        assert self.found() == before

    @rule(target=FINDS, symbols=pages)
    def touch(self, symbols):
        token_ids = self.tokens(symbols)
        match = self.cache.match(token_ids, len(token_ids))
        node = self.cache.touch(match)
        on_host = None if match.host is None else match.end
        num_device, num_host = self.model_match(symbols)
        assert node.end == num_device * self.page_size
        assert (on_host is not None) == (num_host > 0)
        if on_host is not None:
            assert on_host.end == (num_device + num_host) * self.page_size
        return tuple(symbols), node

    def inserted(self, symbols, owned_from, node, num_cached):
        assert node.on_device
        assert num_cached == self.model_match(symbols)[0] * self.page_size
        assert self.found() == (self.device | prefixes(symbols), self.copies)
        self.device |= prefixes(symbols)
        self.count(node, symbols, owned_from)

    def count(self, node, symbols, since):
        """Count a use. Write-through then copies, ancestors first, and evicts copies if it must."""
        self.cache.count_use(node, since * self.page_size)
        device, copies = self.found()
        assert device == self.device
        assert copies - self.copies <= prefixes(symbols)
        evicted = self.copies - copies
        assert not evicted & self.device
        if self.write_after_uses == 1 and self.num_host_pages >= 500:
            assert prefixes(symbols) <= copies | prefixes(symbols[:since])
        if self.write_after_uses is None:
            assert copies == self.copies
        self.copies = copies

    @rule(held=LOCKS, num_pages=st.integers(1, 9))
    def insert_nothing_to_cut(self, held, num_pages):
        path, node = held
        if cut := path[:num_pages]:
            token_ids = self.tokens(cut)
            self.cache.insert(token_ids, len(token_ids), self.pool.empty, node)
            assert self.found() == (self.device, self.copies)

    @rule(num_pages=st.integers(1, 9))
    def evict(self, num_pages):
        num_tokens = num_pages * self.page_size
        num_free, evictable = self.pool.num_free_pages, self.cache.evictable_tokens
        num_freed = self.cache.evict(num_tokens)
        assert (self.pool.num_free_pages - num_free) * self.page_size == num_freed
        assert min(num_tokens, evictable) <= num_freed <= evictable
        self.settle()

    @rule(target=LOCKS, symbols=pages)
    def load(self, symbols):
        """Load as admission does: lock the part on the device, then load the rest and lock it."""
        token_ids = self.tokens(symbols)
        match = self.cache.match(token_ids, len(token_ids))
        node = self.cache.touch(match)
        end = None if match.host is None else match.end
        held = tuple(symbols[: node.end // self.page_size])
        self.cache.lock(node)
        self.locked.append(held)
        if end is None:
            return held, node
        wanted = tuple(symbols[: end.end // self.page_size])
        available = self.pool.num_free_pages * self.page_size + self.cache.evictable_tokens
        num_tokens = match.num_host_tokens
        starts = self.host.lock_copies(end)
        loaded = self.loads.load(end) is not None
        self.host.unlock_copies(end, starts)
        assert loaded == (max(self.threshold, 1) <= num_tokens <= available)
        if not loaded:
            self.settle()
            return held, node
        assert prefixes(wanted) <= self.found()[0]
        assert self.found()[0] <= self.device | prefixes(wanted)
        if self.write_after_uses is not None:
            assert self.found()[1] == self.copies
        self.cache.lock(end)
        self.cache.unlock(node)
        self.locked.remove(held)
        self.locked.append(wanted)
        self.device |= prefixes(wanted)
        self.settle()
        return wanted, end

    # ---- invariants ----------------------------------------------------------------------------

    @invariant()
    def the_tree_holds_what_the_model_does(self):
        assert self.found() == (self.device, self.copies)
        protected = sum(self.is_locked(prefix) for prefix in self.device)
        assert self.cache.protected_tokens == protected * self.page_size
        assert self.cache.evictable_tokens == (len(self.device) - protected) * self.page_size

    @invariant()
    def the_device_has_the_top_of_the_tree(self):
        assert all(prefix[:-1] in self.device for prefix in self.device if len(prefix) > 1)

    @invariant()
    def every_page_of_both_pools_is_free_or_in_the_tree_once(self):
        for pool, spans, num_held in (
            (self.pool, [n.pages for n, _, _ in self.tree()], len(self.device)),
            (self.host_pool, [n.host.pages for n, _, _ in self.tree()], len(self.copies)),
        ):
            ids = [page for span in spans if span is not None for page in span.ids.tolist()]
            assert len(set(ids)) == len(ids) == num_held
            assert len(ids) + pool.num_free_pages == pool.num_pages

    @invariant()
    def both_tiers_are_sound(self):
        _check_tree(self.kv)
        check_host_memory(self.cache.root, self.host)


class _Large(HostMachine):
    """Room for every copy."""

    num_host_pages = 2000


class _WriteBack(HostMachine):
    """Copies at eviction, least used first; pages of four tokens."""

    page_size = 4
    eviction = "lfu"
    write_after_uses = None


class _WriteBackTiny(HostMachine):
    """Most nodes are larger than all of host memory."""

    write_after_uses = None
    num_host_pages = 3


class _WriteBackLarge(HostMachine):
    """Copies at eviction, with room for every copy; short host hits are not loaded."""

    write_after_uses = None
    num_host_pages = 2000
    threshold = 3


class _Selective(HostMachine):
    """Copies at the second use; least benefit first."""

    eviction = "hit-benefit"
    write_after_uses = 2
    num_host_pages = 6


_SETTINGS = settings(stateful_step_count=40)

TestHostTree = HostMachine.TestCase
TestHostTreeLarge = _Large.TestCase
TestHostTreeWriteBack = _WriteBack.TestCase
TestHostTreeWriteBackTiny = _WriteBackTiny.TestCase
TestHostTreeWriteBackLarge = _WriteBackLarge.TestCase
TestHostTreeSelective = _Selective.TestCase
TestHostTree.settings = TestHostTreeLarge.settings = _SETTINGS
TestHostTreeWriteBack.settings = TestHostTreeWriteBackTiny.settings = _SETTINGS
TestHostTreeWriteBackLarge.settings = TestHostTreeSelective.settings = _SETTINGS
