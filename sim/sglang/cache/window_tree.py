"""Sliding windows in the prefix cache: some nodes have KV in the window pool, too.

Follows SGLang 0.5.23's mem_cache/unified_cache/components/swa.py (docs/explanation/sglang.md, rules
22 to 25). A prefix can be used if the last `window` tokens before its end have KV in the window
pool. A node without it is a tombstone. A unit of the pool is the KV of one token.
"""

from typing import Final

from sim.sglang.cache.pool_tree import PoolTree, UnitPool
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import PoolDatum, RadixNode

# Nothing on the path is a tombstone yet.
_UNBROKEN: Final = 1 << 60


class WindowTree(PoolTree):
    """What the prefix cache knows of windows.

    Attributes:
        window_from: of what is inserted next, the KV of the tokens before this position has left
            the window pool.
    """

    def __init__(self, tree: RadixCache, pool: UnitPool, window: int, page_size: int) -> None:
        super().__init__(tree, pool, span=window, used_span=window + page_size)
        self._window = window
        # A longer leaf is cut, so that a lock on a window holds little more than the window.
        self._longest_end = -(-window // page_size) * page_size
        self.window_from = 0
        # Tokens behind the last tombstone of the walk that a match makes; behind the last one of
        # which host memory has no copy.
        self._covered = self._covered_with_loads = _UNBROKEN

    def datum(self, node: RadixNode) -> PoolDatum:
        return node.window

    def num_units(self, node: RadixNode) -> int:
        return node.num_tokens

    def datum_of_copy(self, node: RadixNode) -> PoolDatum:
        return node.host.window

    def new_datum_of_copy(self, node: RadixNode) -> None:
        node.host.window = PoolDatum(node)

    # ---- use -----------------------------------------------------------------------------------

    def begin_match(self) -> None:
        self._covered = self._covered_with_loads = _UNBROKEN

    def allows_end(self, node: RadixNode, num_tokens: int) -> bool:
        self._covered = self._covered + num_tokens if node.window.holds else 0
        return self._covered >= self._window

    def allows_loaded_end(self, node: RadixNode, num_tokens: int) -> bool:
        is_held = self.is_held(node)
        self._covered_with_loads = self._covered_with_loads + num_tokens if is_held else 0
        return self._covered_with_loads >= self._window

    # ---- growth --------------------------------------------------------------------------------

    def begin_insert(self) -> None:
        self.tree.uncounted = []

    def overlapped(self, node: RadixNode) -> None:
        """Take a request's KV for a cached node: a tombstone keeps it, other nodes free it."""
        if not node.window.holds:
            self.brought_back(node)
        elif self.window_from < node.end:
            self.pool.free(min(node.end - self.window_from, node.num_tokens))

    def brought_back(self, node: RadixNode) -> None:
        """Give a node its KV in the window pool, too, as far as the request has it."""
        if self._has_rest(node):
            self.hold(node)

    def added_leaf(self, leaf: RadixNode) -> None:
        """Give a new leaf its KV in the window pool, as far as the request has it."""
        if self._has_rest(leaf):
            if leaf.num_tokens > self._longest_end:
                self.hold(self._cut_off(leaf, leaf.num_tokens - self._longest_end))
            self.hold(leaf)

    def _has_rest(self, node: RadixNode) -> bool:
        """Cut off the tokens whose KV has left the window pool; returns whether any are left."""
        begin = node.end - node.num_tokens
        if begin < self.window_from < node.end:
            self._cut_off(node, self.window_from - begin)
        return self.window_from < node.end

    def _cut_off(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Split a node; returns the upper part, of which as in SGLang no use is counted."""
        upper = self.tree.split(node, num_tokens)
        self.tree.uncounted.append(upper)
        return upper

    def end_insert(self, node: RadixNode) -> None:
        self.used(node)

    def new_node(self, node: RadixNode) -> None:
        node.window = PoolDatum(node)
        if self.copies is not None:
            self.new_datum_of_copy(node)

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        """Both parts have KV in the window pool, or neither; the locks hold for both."""
        datum = upper.window = PoolDatum(upper)
        datum.num_locks = lower.window.num_locks
        if lower.window.holds:
            datum.holds = True
            self._order.add_after(lower.window, datum)
        if self.copies is not None:
            self.copies.split(upper, lower)
