"""The copies in host memory of what nodes hold in a part's pool, and which is dropped first.

Follows SGLang 0.5.23 (mem_cache/unified_cache/components, `drive_host_eviction`, and the lists of
uses `host_lru_lists` in unified_tree_core.py). A copy may be evicted while it is the only one: its
node holds nothing on the device, and no load needs it.
"""

from typing import Protocol

from sim.sglang.cache.pool_order import PoolOrder
from sim.sglang.cache.pool_tree import PoolTree
from sim.sglang.cache.tree.radix_node import PoolDatum, RadixNode
from sim.sglang.cache.tree.tree_part import CopiesOfPool
from sim.sglang.cache.unit_pool import UnitPool


class Saver(Protocol):
    """What the copies of a part need of host memory."""

    def save_for(self, copies: "PoolCopies", node: RadixNode) -> None:
        """An inner node is about to lose what it holds in the part's pool on the device."""

    def evict_leaf(self, node: RadixNode) -> bool:
        """Evict a node that is in host memory alone; False: it has children or is locked."""


class PoolCopies(CopiesOfPool):
    """Copies of what nodes hold in the window pool, or of their states.

    Attributes:
        tree: what the tree knows of the pool on the device.
        pool: the pool in host memory.
        copy_tokens: a unit takes as long to copy as this many tokens of all layers.
        num_loads: how often a load copies a unit.
    """

    def __init__(
        self, tree: PoolTree, pool: UnitPool, host: Saver, copy_tokens: float, num_loads: int
    ) -> None:
        self.tree = tree
        self.pool = pool
        self.copy_tokens = copy_tokens
        self.num_loads = num_loads
        self._host = host
        self._alone = PoolOrder()
        tree.copies = self
        tree.new_datum_of_copy(tree.tree.root)

    def _datum(self, node: RadixNode) -> PoolDatum:
        return self.tree.datum_of_copy(node)

    def has_copy(self, node: RadixNode) -> bool:
        return self._datum(node).holds

    def num_units(self, nodes: list[RadixNode]) -> int:
        return sum([self.tree.num_units(node) for node in nodes])

    # ---- copies --------------------------------------------------------------------------------

    def reserve(self, num_units: int) -> bool:
        """Take free units, evicting copies if there are too few; False: there are too few still."""
        if self.pool.free_units < num_units:
            self.evict(num_units)
        if self.pool.free_units < num_units:
            return False
        self.pool.take(num_units)
        return True

    def store(self, nodes: list[RadixNode]) -> None:
        """The nodes have copies now, in units that `reserve` took."""
        for node in nodes:
            self._datum(node).holds = True

    def drop(self, node: RadixNode) -> None:
        datum = self._datum(node)
        if datum.holds:
            datum.holds = False
            self.pool.free(self.tree.num_units(node))
            if datum.newer is not None:
                self._alone.remove(datum)

    def save(self, node: RadixNode) -> None:
        self._host.save_for(self, node)

    def note_alone(self, node: RadixNode) -> None:
        datum = self._datum(node)
        if datum.holds and datum.newer is None:
            self._alone.add(datum)

    def note_on_device(self, node: RadixNode) -> None:
        datum = self._datum(node)
        if datum.newer is not None:
            self._alone.remove(datum)

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        """Both parts of a node have copies, or neither; the locks hold for both."""
        self.tree.new_datum_of_copy(upper)
        datum, below = self._datum(upper), self._datum(lower)
        datum.num_locks, datum.holds = below.num_locks, below.holds
        if below.holds and not (below.num_locks or self.tree.datum(lower).holds):
            if below.newer is None:
                self._alone.add(datum)
                self._alone.add(below)
            else:
                self._alone.add_after(below, datum)

    # ---- loads ---------------------------------------------------------------------------------

    def lock(self, end: RadixNode) -> int:
        """Protect the copies that a prefix needs; `unlock` takes what is returned."""
        node, start = end, end.end - self.tree.span
        while node.parent is not None and node.end > start:
            datum = self._datum(node)
            if datum.newer is not None:
                self._alone.remove(datum)
            datum.num_locks += 1
            node = node.parent
        return node.end if self.tree.divides else end.end - 1

    def unlock(self, end: RadixNode, start: int) -> None:
        """Undo one `lock` of this node, which returned `start`: the copies count as used now."""
        node = end
        while node.parent is not None and node.end > start:
            datum = self._datum(node)
            datum.num_locks -= 1
            if not datum.num_locks and datum.holds and not self.tree.datum(node).holds:
                self.note_alone(node)
            node = node.parent

    # ---- eviction ------------------------------------------------------------------------------

    def evict(self, num_units: int) -> None:
        """Evict until this many units are freed, or nothing is left to evict.

        The least recently used copies are first. With a leaf all of its copies go; any other node
        keeps those of the layers with full attention.
        """
        num_left = self.pool.free_units + num_units
        datum = self._alone.oldest_unlocked()
        while datum is not None and self.pool.free_units < num_left:
            node, datum = datum.node, self._alone.next_unlocked(datum)
            if not self._host.evict_leaf(node):
                self.drop(node)
                for part in self.tree.dependents:
                    part.drop_copy(node)
