"""The nodes that hold something in a part's pool, from the most to the least recently used."""

from sim.sglang.cache.tree.radix_node import PoolDatum, RadixNode


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
        """The least recently used node without a lock on its window; None: there is none."""
        return self.next_unlocked(self._oldest)

    def next_unlocked(self, datum: PoolDatum) -> PoolDatum | None:
        """The least recently used of the unlocked nodes that were used after this one."""
        newer = datum.newer
        while newer is not None and newer.num_locks:
            newer = newer.newer
        return None if newer is self.newest else newer
