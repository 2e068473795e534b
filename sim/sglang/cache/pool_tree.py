"""A part's pool, and what the prefix cache knows of it: some nodes hold something there, too.

What windows and states share in SGLang 0.5.23: the order of uses, locks and eviction
(mem_cache/unified_cache/unified_tree_core.py; docs/explanation/sglang.md, rules 22 to 25 and 30 to
33), and what host memory needs to know to copy it and to load it back.
"""

from sim.core.errors import InvariantError
from sim.sglang.cache.tree.prefix_cache import CopiesOfPool, TreePart
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import PoolDatum, RadixNode


class UnitPool:
    """Free units of the pool."""

    def __init__(self, num_units: int) -> None:
        self.num_units = self.free_units = num_units

    def take(self, num_units: int) -> None:
        """Allocate units. Raises InvariantError if too few are free."""
        if num_units > self.free_units:
            raise InvariantError(
                f"{num_units} units taken from a part's pool, {self.free_units} free"
            )
        self.free_units -= num_units

    def free(self, num_units: int) -> None:
        """Give units back. Raises InvariantError if some were free already."""
        self.free_units += num_units
        if num_units < 0 or self.free_units > self.num_units:
            raise InvariantError(
                f"{num_units} units of a part's pool were freed, some were free already"
            )


class PoolOrder:
    """A linked list of nodes' data, as in SGLang 0.5.23 (`UnifiedLRUList`, unified_tree_core.py).

    The tree has an order of its own: a node far before the end of a match is used there, but not
    here.

    Attributes:
        newest: before the most recently used one; it stands for no node.
    """

    def __init__(self) -> None:
        # The list's two ends, which are no nodes.
        self.newest = PoolDatum(RadixNode.new_root())
        self._oldest = PoolDatum(RadixNode.new_root())
        self.newest.older, self._oldest.newer = self._oldest, self.newest

    def add(self, datum: PoolDatum) -> None:
        """Add a node as the most recently used one."""
        self.add_after(self.newest, datum)

    def add_after(self, newer: PoolDatum, datum: PoolDatum) -> None:
        """Add a node right after `newer`, as used a little earlier."""
        older = newer.older
        if older is not None:
            datum.newer, datum.older = newer, older
            newer.older = older.newer = datum

    def remove(self, datum: PoolDatum) -> None:
        newer, older = datum.newer, datum.older
        if newer is not None and older is not None:
            newer.older, older.newer = older, newer
        datum.newer = datum.older = None

    def oldest_unlocked(self) -> PoolDatum | None:
        """The least recently used node that is not locked; None: there is none."""
        return self.next_unlocked(self._oldest)

    def next_unlocked(self, datum: PoolDatum) -> PoolDatum | None:
        """The least recently used of the unlocked nodes that were used after this one."""
        newer = datum.newer
        while newer is not None and newer.num_locks:
            newer = newer.newer
        return None if newer is self.newest else newer


class PoolTree(TreePart):
    """Base class of what a tree knows of a pool of windows or states.

    Attributes:
        evictable_units: units of it that nodes hold which no request has locked there.
        protected_units: units of it that nodes hold which are locked there.
        copies: their copies in host memory; None: there is no host memory.
        span: a prefix needs the nodes of this many tokens before its end.
        divides: a split divides what a node holds; otherwise the lower part keeps it.
    """

    divides = True

    def __init__(self, tree: RadixCache, pool: UnitPool, span: int, used_span: int) -> None:
        """A use of a prefix is a use of the nodes of its last `used_span` tokens there."""
        super().__init__()
        self.tree = tree
        self.pool = pool
        self.evictable_units = self.protected_units = 0
        self.copies: CopiesOfPool | None = None
        self.span = span
        self._used_span = used_span
        self._order = PoolOrder()
        tree.add_part(self)

    def datum(self, node: RadixNode) -> PoolDatum:
        """What the part keeps about a node."""
        raise NotImplementedError

    def num_units(self, node: RadixNode) -> int:
        """Units of the pool that a node takes if it holds something there."""
        raise NotImplementedError

    def datum_of_copy(self, node: RadixNode) -> PoolDatum:
        """What the part keeps about the copy in host memory of what a node holds."""
        raise NotImplementedError

    def new_datum_of_copy(self, node: RadixNode) -> None:
        """The node has no copy yet: it is new, or the upper part of a node that was split."""
        raise NotImplementedError

    def is_held(self, node: RadixNode) -> bool:
        """Whether the node has something in the pool, or a copy of it in host memory."""
        if self.datum(node).holds:
            return True
        return self.copies is not None and self.datum_of_copy(node).holds

    def nodes_to_copy(self, node: RadixNode) -> list[RadixNode]:
        """With a copy of this node, those nodes of the prefix's end are copied that have none.

        As in SGLang 0.5.23 (`_collect_unbacked_swa_nodes_in_window`, components/swa.py), the search
        ends at a node that holds nothing, or that is being copied.
        """
        found = []
        current, start = node, node.end - self.span
        while current.parent is not None and current.end > start:
            if current.host.stored_with is not None or not self.is_held(current):
                break
            if self.datum(current).holds and not self.datum_of_copy(current).holds:
                found.append(current)
            current = current.parent
        return found

    def nodes_to_load(self, end: RadixNode) -> list[RadixNode]:
        """The nodes that a prefix needs, but has in host memory alone; the last one first."""
        found = []
        current, start = end, end.end - self.span
        while current.parent is not None and current.end > start and self.is_held(current):
            if not self.datum(current).holds:
                found.append(current)
            current = current.parent
        return found

    # ---- use -----------------------------------------------------------------------------------

    def used(self, end: RadixNode) -> None:
        """Mark the nodes of the last tokens before `end` as used, the last one most.

        A node that the first of these tokens is in counts as a whole.
        """
        place, node, start = self._order.newest, end, end.end - self._used_span
        while node.parent is not None and node.end > start:
            datum = self.datum(node)
            if datum.holds:
                self._order.remove(datum)
                self._order.add_after(place, datum)
                place = datum
            node = node.parent

    def lock(self, end: RadixNode) -> int:
        current, start = end, end.end - self.span
        while current.parent is not None and current.end > start:
            self.lock_node(current)
            current = current.parent
        return current.end if self.divides else end.end - 1

    def unlock(self, end: RadixNode, start: int) -> None:
        current = end
        while current.parent is not None and current.end > start:
            self.unlock_node(current)
            current = current.parent

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

    def hold(self, node: RadixNode) -> None:
        """Give a node what a request, or a load, has for it in the pool."""
        datum = self.datum(node)
        datum.holds = True
        self._order.add(datum)
        if self.copies is not None:
            self.copies.note_on_device(node)
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
            if self.copies is not None:
                self.copies.note_alone(node)

    def drop_copy(self, node: RadixNode) -> None:
        if self.copies is not None:
            self.copies.drop(node)

    def evict_until_free(self, num_free: int) -> None:
        """Evict until `num_free` units of the pool are free, or nothing is left to evict.

        The least recently used nodes are first. An unlocked leaf leaves the device; any other node
        keeps its KV of the layers with full attention.
        """
        datum = self._order.oldest_unlocked()
        while datum is not None and self.pool.free_units < num_free:
            node, datum = datum.node, self._order.next_unlocked(datum)
            if node.num_locks or node.children:
                if self.copies is not None:
                    self.copies.save(node)
                self.drop(node)
                for part in self.dependents:
                    part.drop(node)
            else:
                self.tree.evict_unlocked_leaf(node)
