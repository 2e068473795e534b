"""The radix cache of a model with state-space layers: some nodes have the state at their end.

Follows SGLang 0.5.23's unified radix cache with the components full and mamba
(mem_cache/unified_cache/unified_tree_core.py and components/mamba.py; docs/explanation/sglang.md,
rules 30 to 33). A prefix can be used if its last node has a state.
"""

from sim.core.errors import InvariantError
from sim.core.tokens import TokenSequence
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.eviction import LeafQueue
from sim.sglang.cache.prefix_cache import PrefixMatch
from sim.sglang.cache.radix_cache import RadixCache
from sim.sglang.cache.radix_node import ChildKey, RadixNode, SideNodeState
from sim.sglang.cache.side_order import SideOrder


class StateRadixCache(RadixCache):
    """A radix cache whose nodes may have a state.

    Attributes:
        num_free_states: states of the pool that neither a node nor a request has.
        num_evictable_states: nodes with a state that no request has locked.
        num_protected_states: nodes with a state that are locked.
    """

    def __init__(self, pool: PagePool, leaves: LeafQueue, num_states: int) -> None:
        super().__init__(pool, leaves)
        self.num_free_states = num_states
        self.num_evictable_states = self.num_protected_states = 0
        self._order = SideOrder()
        self.root.side = SideNodeState(self.root)

    # ---- queries -------------------------------------------------------------------------------

    def match(
        self, token_ids: TokenSequence, limit: int, start: RadixNode | None = None
    ) -> PrefixMatch:
        """`start` is not used: the state there may have been evicted."""
        return PrefixMatch(_with_state(super().match(token_ids, limit).node))

    def find(self, token_ids: TokenSequence, limit: int) -> tuple[RadixNode, int]:
        """Find the longest usable prefix of `token_ids[:limit]`, and mark it as used.

        Returns:
            The node at its end, and how many tokens the layers without states could use.
        """
        walk = super().match(token_ids, limit)
        last = walk.node
        if walk.child is not None:
            last = self._split(walk.child, walk.num_child_tokens)
        end = _with_state(walk.node)
        self._use_state(end)
        self._use_path(end)
        return end, last.end

    # ---- use -----------------------------------------------------------------------------------

    def touch(self, match: PrefixMatch) -> RadixNode:
        end = super().touch(match)
        self._use_state(end)
        return end

    def _use_state(self, node: RadixNode) -> None:
        if node.side.holds:
            self._order.remove(node.side)
            self._order.add(node.side)

    def lock(self, node: RadixNode) -> None:
        super().lock(node)
        state = node.side
        if state.holds and not state.num_locks:
            self.num_evictable_states -= 1
            self.num_protected_states += 1
        state.num_locks += 1

    def unlock(self, node: RadixNode) -> None:
        state = node.side
        if not state.num_locks:
            raise InvariantError("a state was unlocked more often than it was locked")
        state.num_locks -= 1
        if state.holds and not state.num_locks:
            self.num_evictable_states += 1
            self.num_protected_states -= 1
        super().unlock(node)

    # ---- growth --------------------------------------------------------------------------------

    def insert_state(
        self, token_ids: TokenSequence, owned_from: int, pages: Span, start: RadixNode | None
    ) -> tuple[RadixNode, bool]:
        """Give pages and the state after their last token to the cache: see `insert`.

        Returns:
            The node at which the tokens end, and whether the cache took the state: not if that node
            has one.
        """
        node, num_cached = self.insert(token_ids, owned_from, pages, start)
        state, is_new = node.side, num_cached < len(token_ids)
        if not is_new:
            self._use(node)
        if state.holds:
            self._use_state(node)
            return node, False
        state.holds = True
        self._order.add(state)
        if state.num_locks:
            self.num_protected_states += 1
        else:
            self.num_evictable_states += 1
        return node, True

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
        """The state, and the locks on it, stay at the end: with the lower part."""
        upper = super()._cut_tokens(node, num_tokens)
        upper.side = SideNodeState(upper)
        return upper

    # ---- eviction ------------------------------------------------------------------------------

    def _evict_leaf(self, leaf: RadixNode, parent: RadixNode) -> None:
        self._drop_state(leaf)
        super()._evict_leaf(leaf, parent)

    def evict_states(self, num_free: int) -> bool:
        """Evict until `num_free` states are free; False: there is nothing left to evict.

        The least recently used states are first. An unlocked leaf leaves the cache with its state;
        any other node keeps its KV.
        """
        state = self._order.oldest_unlocked()
        while state is not None and self.num_free_states < num_free:
            node, state = state.node, self._order.next_unlocked(state)
            if node.num_locks or node.children:
                self._drop_state(node)
                continue
            parent = node.required_parent()
            self._evict_leaf(node, parent)
            node.num_locks = 1  # so that the queue of leaves drops it
            self._leaves.offer(parent)
        return self.num_free_states >= num_free

    def _drop_state(self, node: RadixNode) -> None:
        if node.side.holds:
            node.side.holds = False
            self._order.remove(node.side)
            self.num_free_states += 1
            self.num_evictable_states -= 1


def _with_state(node: RadixNode) -> RadixNode:
    """The deepest node with a state on the path to this node, or the root."""
    while node.parent is not None and not node.side.holds:
        node = node.parent
    return node
