"""What the prefix cache knows of a part's pool: some nodes hold something there, too.

What windows and states share in SGLang 0.5.23: the order of uses, locks and eviction
(mem_cache/unified_cache/unified_tree_core.py; docs/explanation/sglang.md, rules 22 to 25 and 30 to
33).
"""

from sim.core.errors import InvariantError
from sim.sglang.cache.pool_order import PoolOrder
from sim.sglang.cache.radix_cache import RadixCache
from sim.sglang.cache.radix_node import PoolDatum, RadixNode
from sim.sglang.cache.tree_part import TreePart
from sim.sglang.cache.unit_pool import UnitPool


class PoolTree(TreePart):
    """Base class of what a tree knows of a pool of windows or states.

    Attributes:
        tree: the prefix cache.
        pool: the pool.
        evictable_units: units of it that nodes hold which no request has locked there.
        protected_units: units of it that nodes hold which are locked there.
    """

    def __init__(self, tree: RadixCache, pool: UnitPool, used_with_end: int) -> None:
        """A use of a prefix is a use of the nodes of its last `used_with_end` tokens there."""
        self.tree = tree
        self.pool = pool
        self.evictable_units = self.protected_units = 0
        self._used_with_end = used_with_end
        self._order = PoolOrder()
        tree.add_part(self)

    def datum(self, node: RadixNode) -> PoolDatum:
        """What the part keeps about a node."""
        raise NotImplementedError

    def num_units(self, node: RadixNode) -> int:
        """Units of the pool that a node takes if it holds something there."""
        raise NotImplementedError

    # ---- use -----------------------------------------------------------------------------------

    def used(self, end: RadixNode) -> None:
        """Mark the nodes of the last tokens before `end` as used, the last one most.

        A node that the first of these tokens is in counts as a whole.
        """
        place, node, start = self._order.newest, end, end.end - self._used_with_end
        while node.parent is not None and node.end > start:
            datum = self.datum(node)
            if datum.holds:
                self._order.remove(datum)
                self._order.add_after(place, datum)
                place = datum
            node = node.parent

    def lock_node(self, node: RadixNode) -> None:
        """Protect what a node holds, or will hold, in the pool."""
        datum = self.datum(node)
        if datum.holds and not datum.num_locks:
            num_units = self.num_units(node)
            self.evictable_units -= num_units
            self.protected_units += num_units
        datum.num_locks += 1

    def unlock_node(self, node: RadixNode) -> None:
        """Undo one `lock_node`."""
        datum = self.datum(node)
        if not datum.num_locks:
            raise InvariantError("a pool was unlocked more often than it was locked")
        datum.num_locks -= 1
        if datum.holds and not datum.num_locks:
            num_units = self.num_units(node)
            self.evictable_units += num_units
            self.protected_units -= num_units

    # ---- what nodes hold -------------------------------------------------------------------------

    def _hold(self, node: RadixNode) -> None:
        """Give a node what a request has for it in the pool."""
        datum = self.datum(node)
        datum.holds = True
        self._order.add(datum)
        if datum.num_locks:
            self.protected_units += self.num_units(node)
        else:
            self.evictable_units += self.num_units(node)

    def drop(self, node: RadixNode) -> None:
        datum = self.datum(node)
        if datum.holds:
            datum.holds = False
            self._order.remove(datum)
            self.pool.free(self.num_units(node))
            self.evictable_units -= self.num_units(node)

    def evict_until_free(self, num_free: int) -> None:
        """Evict until `num_free` units of the pool are free, or nothing is left to evict.

        The least recently used nodes are first. An unlocked leaf leaves the cache; any other node
        keeps its KV of the layers with full attention.
        """
        datum = self._order.oldest_unlocked()
        while datum is not None and self.pool.free_units < num_free:
            node, datum = datum.node, self._order.next_unlocked(datum)
            if node.num_locks or node.children:
                self.drop(node)
            else:
                self.tree.evict_unlocked_leaf(node)
