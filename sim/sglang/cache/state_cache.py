"""The radix cache of a model with state-space layers: some nodes have the state at their end.

Follows SGLang 0.5.23's unified radix cache with the components full and mamba
(mem_cache/unified_cache/components/mamba.py; docs/explanation/sglang.md, rules 30 to 33). A prefix
can be used if its last node has a state. A unit of the second pool is a state.
"""

from sim.core.tokens import TokenSequence
from sim.engine.page_pool import PagePool
from sim.sglang.cache.eviction import LeafQueue
from sim.sglang.cache.radix_cache import RadixCache
from sim.sglang.cache.radix_node import RadixNode
from sim.sglang.cache.side_cache import SideRadixCache, SideWalk
from sim.sglang.cache.side_pool import SidePool


class StateRadixCache(SideRadixCache):
    """A radix cache whose nodes may have a state."""

    def __init__(self, pool: PagePool, leaves: LeafQueue, side_pool: SidePool) -> None:
        # Of a prefix, the state at its end alone is used.
        super().__init__(pool, leaves, side_pool, used_with_end=1)

    def num_units(self, node: RadixNode) -> int:
        return 1

    def _walk(self, token_ids: TokenSequence, limit: int) -> SideWalk:
        match = RadixCache.match(self, token_ids, limit)
        walk = SideWalk(self.root)
        walk.last, walk.child = match.node, match.child
        walk.num_child_tokens = match.num_child_tokens
        node = match.node
        while node.parent is not None and not node.side.holds:
            node = node.parent
        walk.best = node
        return walk

    def lock(self, node: RadixNode) -> None:
        super().lock(node)
        self._lock_side(node.side)

    def unlock(self, node: RadixNode) -> None:
        self._unlock_side(node.side)
        super().unlock(node)

    def give_state(self, node: RadixNode, *, is_new: bool) -> bool:
        """Offer the state at the end of a node, right after an insertion that ended there.

        Args:
            node: the node.
            is_new: the insertion has made it.

        Returns:
            Whether the node took the state: not if it has one.
        """
        if not is_new:
            self._use(node)
        if node.side.holds:
            self._order.use(node, self._used_with_end)
            return False
        self._hold(node)
        return True
