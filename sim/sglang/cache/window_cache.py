"""The radix cache of a model with sliding windows: some nodes have KV in a second pool, too.

Follows SGLang 0.5.23's unified radix cache with the components full and swa
(mem_cache/unified_cache/unified_tree_core.py and components/swa.py; docs/explanation/sglang.md,
rules 22 to 25). A prefix can be used if the last `window` tokens before its end have KV in the
window pool. A node without it is a tombstone.
"""

from typing import Final

from sim.core.errors import InvariantError
from sim.core.tokens import TokenSequence
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.eviction import LeafQueue
from sim.sglang.cache.prefix_cache import PrefixMatch
from sim.sglang.cache.radix_cache import RadixCache
from sim.sglang.cache.radix_node import ChildKey, RadixNode, SideNodeState
from sim.sglang.cache.side_order import SideOrder
from sim.sglang.cache.window_pool import WindowPool

# Nothing on the path is a tombstone yet.
_UNBROKEN: Final = 1 << 60


class WindowWalk:
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


class WindowRadixCache(RadixCache):
    """A radix cache whose nodes may have KV in a window pool.

    Attributes:
        pool: the window pool.
        window_evictable_tokens: tokens of nodes with KV in it that no request has locked there.
        window_protected_tokens: tokens of nodes with KV in it that are locked there.
    """

    def __init__(self, pool: PagePool, leaves: LeafQueue, window_pool: WindowPool, window: int):
        super().__init__(pool, leaves)
        self.window_pool = window_pool
        self.window_evictable_tokens = self.window_protected_tokens = 0
        self._window = window
        self._order = SideOrder()
        self.root.side = SideNodeState(self.root)
        # A longer leaf is cut, so that a lock on a window holds little more than the window.
        self._longest_end = -(-window // pool.page_size) * pool.page_size
        self._used_with_end = window + pool.page_size
        # Nodes that the last insertion cut off others; they count no use of it.
        self._cut_off: list[RadixNode] = []
        self._window_from = 0

    # ---- queries -------------------------------------------------------------------------------

    def match(
        self, token_ids: TokenSequence, limit: int, start: RadixNode | None = None
    ) -> PrefixMatch:
        """`start` is not used: what was a usable prefix may not be one any more."""
        walk = self._walk(token_ids, limit)
        if walk.ends_in_child:
            return PrefixMatch(walk.last, walk.child, walk.num_child_tokens)
        return PrefixMatch(walk.best)

    def _walk(self, token_ids: TokenSequence, limit: int) -> WindowWalk:
        limit = min(limit, len(token_ids)) // self._page_size * self._page_size
        walk = WindowWalk(self.root)
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

    def find(self, token_ids: TokenSequence, limit: int) -> tuple[RadixNode, int]:
        """Find the longest usable prefix of `token_ids[:limit]`, and mark it as used.

        Returns:
            The node at its end, and how many tokens layers without a window could use.
        """
        walk = self._walk(token_ids, limit)
        end, last = walk.best, walk.last
        if walk.child is not None:
            last = self._split(walk.child, walk.num_child_tokens)
            if walk.ends_in_child:
                end = last
        self._order.use(end, self._used_with_end)
        self._use_path(end)
        return end, last.end

    def touch(self, match: PrefixMatch) -> RadixNode:
        end = super().touch(match)
        self._order.use(end, self._used_with_end)
        return end

    def count_use(self, node: RadixNode, since: int) -> None:
        """As in SGLang, what the last insertion cut off from other nodes counts no use."""
        if self._counts_uses:
            self._leaves.count_path(node, since, self._cut_off)

    def lock_window(self, node: RadixNode) -> int:
        """Protect the window before the end of a node; returns where the locked tokens begin."""
        current, start = node, node.end - self._window
        while current.parent is not None and current.end > start:
            state = current.side
            if state.holds and not state.num_locks:
                self.window_evictable_tokens -= current.num_tokens
                self.window_protected_tokens += current.num_tokens
            state.num_locks += 1
            current = current.parent
        return current.end

    def unlock_window(self, node: RadixNode, start: int) -> None:
        """Undo a `lock_window` of this node that returned `start`."""
        current = node
        while current.parent is not None and current.end > start:
            state = current.side
            if not state.num_locks:
                raise InvariantError("a window was unlocked more often than it was locked")
            state.num_locks -= 1
            if state.holds and not state.num_locks:
                self.window_evictable_tokens += current.num_tokens
                self.window_protected_tokens -= current.num_tokens
            current = current.parent

    # ---- growth --------------------------------------------------------------------------------

    def insert(
        self, token_ids: TokenSequence, owned_from: int, pages: Span, start: RadixNode | None = None
    ) -> tuple[RadixNode, int]:
        return self.insert_window(token_ids, owned_from, pages, 0, start)

    def insert_window(
        self,
        token_ids: TokenSequence,
        owned_from: int,
        pages: Span,
        window_from: int,
        start: RadixNode | None = None,
    ) -> tuple[RadixNode, int]:
        """Give pages to the cache, in both pools: see `insert`.

        Args:
            token_ids: whole pages of tokens, from the beginning of a sequence.
            owned_from: KV of the tokens before this position belongs to the cache already.
            pages: the pages of `token_ids[owned_from:]`.
            window_from: KV of the tokens before this position has left the window pool.
            start: a locked node on the path of these tokens.

        Returns:
            The node at which the tokens end, and how many tokens were cached before.
        """
        self._window_from, self._cut_off = window_from, []
        node, num_cached = super().insert(token_ids, owned_from, pages, start)
        self._order.use(node, self._used_with_end)
        return node, num_cached

    def _freed_duplicates(self, node: RadixNode) -> None:
        """Take a request's KV for a cached node: a tombstone keeps it, other nodes free it."""
        begin = max(node.end - node.num_tokens, self._window_from)
        if begin >= node.end:
            return
        if node.side.holds:
            self.window_pool.free(node.end - begin)
            return
        if begin > node.end - node.num_tokens:
            self._cut_off.append(self._split(node, begin - (node.end - node.num_tokens)))
        self._give_kv(node)

    def _added_leaf(self, leaf: RadixNode) -> None:
        """Give a new leaf its KV in the window pool, after cutting off what has none."""
        begin, window_from = leaf.end - leaf.num_tokens, self._window_from
        if window_from >= leaf.end:
            return
        if window_from > begin:
            self._cut_off.append(self._split(leaf, window_from - begin))
        if leaf.num_tokens > self._longest_end:
            older = self._split(leaf, leaf.num_tokens - self._longest_end)
            self._cut_off.append(older)
            self._give_kv(older)
        self._give_kv(leaf)

    def _give_kv(self, node: RadixNode) -> None:
        state = node.side
        state.holds = True
        self._order.add(state)
        if state.num_locks:
            self.window_protected_tokens += node.num_tokens
        else:
            self.window_evictable_tokens += node.num_tokens

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
        upper = super()._cut_tokens(node, num_tokens)
        state = upper.side = SideNodeState(upper)
        state.num_locks = node.side.num_locks
        if node.side.holds:
            state.holds = True
            self._order.add_after(node.side, state)
        return upper

    # ---- eviction ------------------------------------------------------------------------------

    def _evict_leaf(self, leaf: RadixNode, parent: RadixNode) -> None:
        self._drop_kv(leaf)
        super()._evict_leaf(leaf, parent)

    def evict_window(self, num_free: int) -> None:
        """Evict until `num_free` tokens of the window pool are free, or nothing is left to evict.

        The least recently used nodes are first. A leaf leaves the cache; any other node becomes a
        tombstone.
        """
        state = self._order.oldest_unlocked()
        while state is not None and self.window_pool.free_tokens < num_free:
            node, state = state.node, self._order.next_unlocked(state)
            if node.num_locks or node.children:
                self._drop_kv(node)
                continue
            parent = node.required_parent()
            self._evict_leaf(node, parent)
            node.num_locks = 1  # so that the queue of leaves drops it
            self._leaves.offer(parent)

    def _drop_kv(self, node: RadixNode) -> None:
        """Free a node's KV in the window pool, if it has some there."""
        state = node.side
        if state.holds:
            state.holds = False
            self._order.remove(state)
            self.window_pool.free(node.num_tokens)
            self.window_evictable_tokens -= node.num_tokens
