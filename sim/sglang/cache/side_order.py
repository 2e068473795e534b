"""The nodes that hold something in a second pool, from the most to the least recently used."""

from sim.sglang.cache.radix_node import RadixNode, SideNodeState


class SideOrder:
    """A linked list of node states, as in SGLang 0.5.23 (`UnifiedLRUList`, unified_tree_core.py).

    It is apart from the order of uses in the radix cache: a node far before the end of a match is
    used there, but not here.
    """

    def __init__(self) -> None:
        # The list's two ends, which are no nodes.
        self._newest = SideNodeState(RadixNode.new_root())
        self._oldest = SideNodeState(RadixNode.new_root())
        self._newest.older, self._oldest.newer = self._oldest, self._newest

    def add(self, state: SideNodeState) -> None:
        """Add a node as the most recently used one."""
        self.add_after(self._newest, state)

    def add_after(self, newer: SideNodeState, state: SideNodeState) -> None:
        """Add a node right after `newer`, as used a little earlier."""
        older = newer.older
        if older is not None:
            state.newer, state.older = newer, older
            newer.older = older.newer = state

    def remove(self, state: SideNodeState) -> None:
        newer, older = state.newer, state.older
        if newer is not None and older is not None:
            newer.older, older.newer = older, newer
        state.newer = state.older = None

    def use(self, end: RadixNode, num_tokens: int) -> None:
        """Mark the nodes of the last `num_tokens` tokens before `end` as used, the last one most.

        A node that the first of these tokens is in counts as a whole.
        """
        place, node, start = self._newest, end, end.end - num_tokens
        while node.parent is not None and node.end > start:
            if node.side.holds:
                self.remove(node.side)
                self.add_after(place, node.side)
                place = node.side
            node = node.parent

    def oldest_unlocked(self) -> SideNodeState | None:
        """The least recently used node without a lock on its window; None: there is none."""
        return self.next_unlocked(self._oldest)

    def next_unlocked(self, state: SideNodeState) -> SideNodeState | None:
        """The least recently used of the unlocked nodes that were used after this one."""
        newer = state.newer
        while newer is not None and newer.num_locks:
            newer = newer.newer
        return None if newer is self._newest else newer
