"""The radix cache of a model with sliding windows: some nodes have KV in a second pool, too.

Follows SGLang 0.5.23's unified radix cache with the components full and swa
(mem_cache/unified_cache/components/swa.py; docs/explanation/sglang.md, rules 22 to 25). A prefix
can be used if the last `window` tokens before its end have KV in the window pool. A node without it
is a tombstone. A unit of the window pool, which is the second pool, is the KV of one token.
"""

from typing import Final

from sim.core.tokens import TokenSequence
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.eviction import LeafQueue
from sim.sglang.cache.radix_node import RadixNode
from sim.sglang.cache.side_cache import SideRadixCache, SideWalk
from sim.sglang.cache.side_pool import SidePool

# Nothing on the path is a tombstone yet.
_UNBROKEN: Final = 1 << 60


class WindowRadixCache(SideRadixCache):
    """A radix cache whose nodes may have KV in a window pool.

    Attributes:
        window_from: of what is inserted next, the KV of the tokens before this position has left
            the window pool.
    """

    def __init__(self, pool: PagePool, leaves: LeafQueue, window_pool: SidePool, window: int):
        super().__init__(pool, leaves, window_pool, used_with_end=window + pool.page_size)
        self._window = window
        # A longer leaf is cut, so that a lock on a window holds little more than the window.
        self._longest_end = -(-window // pool.page_size) * pool.page_size
        # Nodes that the last insertion cut off others; they count no use of it.
        self._cut_off: list[RadixNode] = []
        self.window_from = 0

    def num_units(self, node: RadixNode) -> int:
        return node.num_tokens

    def _walk(self, token_ids: TokenSequence, limit: int) -> SideWalk:
        limit = min(limit, len(token_ids)) // self._page_size * self._page_size
        walk = SideWalk(self.root)
        node, covered = self.root, _UNBROKEN
        while node.end < limit and node.children:
            self._key_only_child(node)
            child = node.children.get(self._child_key(token_ids, node.end))
            if child is None:
                break
            num_tokens = self._num_common_tokens(child, token_ids, node.end, limit)
            covered = covered + num_tokens if child.side.holds else 0
            if num_tokens < child.num_tokens:
                walk.child, walk.num_child_tokens = child, num_tokens
                walk.ends_in_child = covered >= self._window
                break
            node = walk.last = child
            if covered >= self._window:
                walk.best = node
        return walk

    # ---- use -----------------------------------------------------------------------------------

    def count_use(self, node: RadixNode, since: int) -> None:
        """As in SGLang, what the last insertion cut off from other nodes counts no use."""
        if self._counts_uses:
            self._leaves.count_path(node, since, self._cut_off)

    def lock_window(self, node: RadixNode) -> int:
        """Protect the window before the end of a node; returns where the locked tokens begin."""
        current, start = node, node.end - self._window
        while current.parent is not None and current.end > start:
            self._lock_side(current.side)
            current = current.parent
        return current.end

    def unlock_window(self, node: RadixNode, start: int) -> None:
        """Undo a `lock_window` of this node that returned `start`."""
        current = node
        while current.parent is not None and current.end > start:
            self._unlock_side(current.side)
            current = current.parent

    # ---- growth --------------------------------------------------------------------------------

    def insert(
        self, token_ids: TokenSequence, owned_from: int, pages: Span, start: RadixNode | None = None
    ) -> tuple[RadixNode, int]:
        """Give pages to the cache, in both pools: of the tokens from `window_from` on in both."""
        self._cut_off = []
        node, num_cached = super().insert(token_ids, owned_from, pages, start)
        self._order.use(node, self._used_with_end)
        return node, num_cached

    def _freed_duplicates(self, node: RadixNode) -> None:
        """Take a request's KV for a cached node: a tombstone keeps it, other nodes free it."""
        begin = max(node.end - node.num_tokens, self.window_from)
        if begin >= node.end:
            return
        if node.side.holds:
            self.side_pool.free(node.end - begin)
            return
        if begin > node.end - node.num_tokens:
            self._cut_off.append(self._split(node, begin - (node.end - node.num_tokens)))
        self._hold(node)

    def _added_leaf(self, leaf: RadixNode) -> None:
        """Give a new leaf its KV in the window pool, after cutting off what has none."""
        begin, window_from = leaf.end - leaf.num_tokens, self.window_from
        if window_from >= leaf.end:
            return
        if window_from > begin:
            self._cut_off.append(self._split(leaf, window_from - begin))
        if leaf.num_tokens > self._longest_end:
            older = self._split(leaf, leaf.num_tokens - self._longest_end)
            self._cut_off.append(older)
            self._hold(older)
        self._hold(leaf)

    def _cut_tokens(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Both parts have KV in the window pool, or neither; the locks hold for both."""
        upper = super()._cut_tokens(node, num_tokens)
        state = upper.side
        state.num_locks = node.side.num_locks
        if node.side.holds:
            state.holds = True
            self._order.add_after(node.side, state)
        return upper
