"""The radix cache of a model with a second pool: some nodes hold something there, too.

What windows and states share in SGLang 0.5.23: the walk, the order of uses, locks, splits and
eviction (mem_cache/unified_cache/unified_tree_core.py; docs/explanation/sglang.md,
rules 22 to 25 and 30 to 33).
"""

from sim.core.errors import InvariantError
from sim.core.tokens import TokenSequence
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.eviction import LeafQueue
from sim.sglang.cache.prefix_cache import MatchEnd, PrefixMatch
from sim.sglang.cache.radix_cache import RadixCache
from sim.sglang.cache.radix_node import ChildKey, RadixNode, SideNodeState
from sim.sglang.cache.side_order import SideOrder
from sim.sglang.cache.side_pool import SidePool


class SideWalk:
    """A walk along the cached tokens of a sequence.

    Attributes:
        best: the deepest node at which a usable prefix ends.
        last: the deepest node whose tokens all match.
        child: the child of `last` of which only the first tokens match, or None.
        num_child_tokens: matching tokens of `child`; whole pages.
        ends_in_child: the longest usable prefix ends with the matching tokens of `child`.
    """

    def __init__(self, root: RadixNode) -> None:
        self.best = self.last = root
        self.child: RadixNode | None = None
        self.num_child_tokens = 0
        self.ends_in_child = False


class SideRadixCache(RadixCache):
    """Base class of radix caches with a second pool.

    Attributes:
        side_pool: the second pool.
        side_evictable: units of it that nodes hold which no request has locked there.
        side_protected: units of it that nodes hold which are locked there.
    """

    def __init__(
        self, pool: PagePool, leaves: LeafQueue, side_pool: SidePool, used_with_end: int
    ) -> None:
        """A use of a prefix is a use of the nodes of its last `used_with_end` tokens there."""
        super().__init__(pool, leaves)
        self.side_pool = side_pool
        self.side_evictable = self.side_protected = 0
        self._used_with_end = used_with_end
        self._order = SideOrder()
        self.root.side = SideNodeState(self.root)

    def num_units(self, node: RadixNode) -> int:
        """Units of the second pool that a node takes if it holds something there."""
        raise NotImplementedError

    # ---- queries -------------------------------------------------------------------------------

    def _walk(self, token_ids: TokenSequence, limit: int) -> SideWalk:
        """Find the longest usable prefix of `token_ids[:limit]`. Changes nothing."""
        raise NotImplementedError

    def match(
        self, token_ids: TokenSequence, limit: int, start: RadixNode | None = None
    ) -> PrefixMatch:
        """`start` is not used: what was a usable prefix may not be one any more."""
        walk = self._walk(token_ids, limit)
        if walk.ends_in_child:
            return PrefixMatch(walk.last, walk.child, walk.num_child_tokens)
        full = MatchEnd(walk.last, walk.child, walk.num_child_tokens)
        return PrefixMatch(walk.best, full=full)

    # ---- use -----------------------------------------------------------------------------------

    def touch(self, match: PrefixMatch) -> RadixNode:
        """As in `PrefixCache`; also splits a node where the match of the other layers ends."""
        full = match.full
        if full is not None and full.child is not None:
            self._split(full.child, full.num_child_tokens)
        end = super().touch(match)
        self._order.use(end, self._used_with_end)
        return end

    def _lock_side(self, state: SideNodeState) -> None:
        """Protect what a node holds in the second pool."""
        if state.holds and not state.num_locks:
            num_units = self.num_units(state.node)
            self.side_evictable -= num_units
            self.side_protected += num_units
        state.num_locks += 1

    def _unlock_side(self, state: SideNodeState) -> None:
        """Undo one `_lock_side`."""
        if not state.num_locks:
            raise InvariantError("the second pool was unlocked more often than it was locked")
        state.num_locks -= 1
        if state.holds and not state.num_locks:
            num_units = self.num_units(state.node)
            self.side_evictable += num_units
            self.side_protected -= num_units

    # ---- growth --------------------------------------------------------------------------------

    def _hold(self, node: RadixNode) -> None:
        """Give a node what a request has for it in the second pool."""
        state = node.side
        state.holds = True
        self._order.add(state)
        if state.num_locks:
            self.side_protected += self.num_units(node)
        else:
            self.side_evictable += self.num_units(node)

    def _add_leaf(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span, key: ChildKey | None
    ) -> RadixNode:
        leaf = super()._add_leaf(parent, token_ids, pages, key)
        leaf.side = SideNodeState(leaf)
        return leaf

    def _split(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Split a node, which may be one that was never looked for."""
        self._key_only_child(node.required_parent())
        return super()._split(node, num_tokens)

    def _cut_tokens(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """What the node holds, and the locks on it, stay with the lower part."""
        upper = super()._cut_tokens(node, num_tokens)
        upper.side = SideNodeState(upper)
        return upper

    # ---- eviction ------------------------------------------------------------------------------

    def _evict_leaf(self, leaf: RadixNode, parent: RadixNode) -> None:
        self._drop(leaf)
        super()._evict_leaf(leaf, parent)

    def evict_side(self, num_free: int) -> None:
        """Evict until `num_free` units of the second pool are free, or nothing is left to evict.

        The least recently used nodes are first. An unlocked leaf leaves the cache; any other node
        keeps its KV of the layers with full attention.
        """
        state = self._order.oldest_unlocked()
        while state is not None and self.side_pool.free_units < num_free:
            node, state = state.node, self._order.next_unlocked(state)
            if node.num_locks or node.children:
                self._drop(node)
                continue
            parent = node.required_parent()
            self._evict_leaf(node, parent)
            node.num_locks = 1  # so that the queue of leaves drops it
            self._leaves.offer(parent)

    def _drop(self, node: RadixNode) -> None:
        """Free what an unlocked node holds in the second pool, if it holds something."""
        if node.side.holds:
            node.side.holds = False
            self._order.remove(node.side)
            self.side_pool.free(self.num_units(node))
            self.side_evictable -= self.num_units(node)
