"""The radix cache: KV pages in a tree over token ids; nodes consist of whole pages.

Follows SGLang 0.5.23's unified radix cache: when nodes count as used, where they are split and
which leaf is evicted first (docs/explanation/sglang.md, rules 12 and 14). Deliberate difference:
`match` changes nothing. SGLang's match also marks nodes as used and splits them; here `touch` does
this.
"""

from sim.core.errors import InvariantError
from sim.core.tokens import TokenSequence, kept_part
from sim.engine.page_pool import CacheListener, PagePool, Span
from sim.sglang.cache.events import TreeEvents
from sim.sglang.cache.eviction import LeafQueue, LruLeafQueue
from sim.sglang.cache.prefix_cache import PrefixMatch
from sim.sglang.cache.radix_node import ChildKey, RadixNode
from sim.sglang.cache.radix_tree import RadixTree

# Every use of a path advances the clock by this many ticks: more than any path has nodes, so that
# each node gets a tick of its own.
_DEEPEST_PATH = 1 << 24


class RadixCache(RadixTree):
    """A prefix cache that owns pages of `pool` and frees them by evicting leaves.

    Attributes:
        changes: what has happened to watched nodes: a node with the key of its new child, or an
            evicted node with None. Whoever watches nodes empties the list.
        uncounted: nodes that count no use of the last insertion.
    """

    def __init__(self, pool: PagePool, leaves: LeafQueue | None = None) -> None:
        """`leaves` is an empty queue of the eviction policy; None: least recently used first."""
        super().__init__(pool.page_size)
        self._pool = pool
        self._leaves = LruLeafQueue() if leaves is None else leaves
        self._counts_uses = self._leaves.counts_uses
        self.keeps_priorities = self._leaves.keeps_priorities
        self._tick = 0
        self._num_ranks = 0
        self.changes: list[tuple[RadixNode, ChildKey | None]] = []
        self.uncounted: list[RadixNode] = []
        self._events: TreeEvents | None = None

    def listen(self, listener: CacheListener) -> None:
        self._events = TreeEvents(listener, self._page_size)

    # ---- use -----------------------------------------------------------------------------------

    def touch(self, match: PrefixMatch) -> RadixNode:
        end, full = match.node, match.full
        if full is not None and full.child is not None:
            self.split(full.child, full.num_child_tokens)
        if match.child is not None:
            end = self.split(match.child, match.num_child_tokens)
        self._use_path(end)
        for part in self._parts:
            part.used(end)
        return end

    def count_use(self, node: RadixNode, since: int) -> None:
        if self._counts_uses:
            self._leaves.count_path(node, since, self.uncounted)

    def note_priority(self, node: RadixNode, priority: int) -> None:
        self._leaves.note_priority(node, priority)

    def lock(self, node: RadixNode) -> None:
        current: RadixNode = node
        while current.parent is not None:
            if not current.num_locks:
                self.evictable_tokens -= current.num_tokens
                self.protected_tokens += current.num_tokens
            current.num_locks += 1
            current = current.parent

    def unlock(self, node: RadixNode) -> None:
        current: RadixNode = node
        while current.parent is not None:
            if not current.num_locks:
                raise InvariantError("a node was unlocked more often than it was locked")
            current.num_locks -= 1
            if not current.num_locks:
                self.evictable_tokens += current.num_tokens
                self.protected_tokens -= current.num_tokens
                self._leaves.offer(current)
            current = current.parent

    # ---- growth --------------------------------------------------------------------------------

    def insert(
        self, token_ids: TokenSequence, owned_from: int, pages: Span, start: RadixNode | None = None
    ) -> tuple[RadixNode, int]:
        node = start or self.root
        while node.parent is not None and node.end > len(token_ids):
            node = node.parent
        self._use_path(node)
        for part in self._parts:
            part.begin_insert()
        rest = pages
        key: ChildKey | None = None
        while node.end < len(token_ids) and node.children:
            self._key_only_child(node)
            key = self._child_key(token_ids, node.end)
            child = node.children.get(key)
            if child is None:
                break
            key = None
            self.use(child)
            num_tokens = self._num_common_tokens(child, token_ids, node.end, len(token_ids))
            node = child
            if num_tokens < child.num_tokens:
                node = self.split(child, num_tokens)
            num_duplicates = (node.end - max(owned_from, node.end - num_tokens)) // self._page_size
            if num_duplicates > 0:
                rest = self._free_duplicates(node, num_duplicates, rest)
        num_cached = node.end
        if num_cached < len(token_ids):
            node = self._insert_rest(node, token_ids, rest, key)
        for part in self._parts:
            part.end_insert(node)
        return node, num_cached

    def _free_duplicates(self, node: RadixNode, num_duplicates: int, pages: Span) -> Span:
        """Free the first pages, whose tokens this node has; returns the others."""
        duplicates, rest = pages.split(num_duplicates)
        self._pool.free(duplicates)
        for part in self._parts:
            part.overlapped(node)
        return rest

    def _insert_rest(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span, key: ChildKey | None
    ) -> RadixNode:
        """Add a leaf with the tokens that follow those of its parent."""
        leaf_ids = kept_part(token_ids, parent.end, len(token_ids))
        leaf = self._add_leaf(parent, leaf_ids, pages, key)
        for part in self._parts:
            part.added_leaf(leaf)
        if self._events is not None:
            self._events.stored(token_ids, parent.end)
        return leaf

    def _add_leaf(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span, key: ChildKey | None
    ) -> RadixNode:
        """Add a leaf; without a `key` it must be an only child, see `_key_only_child`."""
        leaf = RadixNode(token_ids, pages, parent.end + len(token_ids), parent, self._num_ranks)
        leaf.key = leaf if key is None else key
        self._num_ranks += 1
        for part in self._parts:
            part.new_node(leaf)
        self.use(leaf)
        parent.children[leaf.key] = leaf
        if parent.is_watched:
            self._key_only_child(parent)
            self.changes.append((parent, leaf.key))
        self.evictable_tokens += len(token_ids)
        self._leaves.offer(leaf)
        return leaf

    def split(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Split a node; returns the new upper part. The old object becomes the lower part."""
        if self._parts:  # They split nodes that were never looked for.
            self._key_only_child(node.required_parent())
        upper = self._cut_tokens(node, num_tokens)
        upper.pages, node.pages = node.pages.split(num_tokens // self._page_size)
        upper.required_parent().children[upper.key] = upper
        node.key = node
        upper.children[node.key] = node
        return upper

    def _cut_tokens(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Move the first tokens of a node to a new parent.

        The caller splits the pages, and adds both parts to the `children` of their parents.
        """
        parent = node.required_parent()
        upper = RadixNode(
            kept_part(node.token_ids, 0, num_tokens),
            self._pool.empty,
            parent.end + num_tokens,
            parent,
            node.rank,
        )
        upper.num_locks = node.num_locks
        upper.use_score = node.use_score
        upper.key = node.key
        node.token_ids = kept_part(node.token_ids, num_tokens, node.num_tokens)
        node.num_tokens -= num_tokens
        node.parent = upper
        # A split counts as a use of both parts, of the lower one last (rule 12).
        self.use(upper)
        self.use(node)
        for part in self._parts:
            part.split(upper, node)
        if self._leaves.falls_by_split:
            self._leaves.was_split(node)
        return upper

    def _use_path(self, end: RadixNode) -> None:
        """Mark all nodes from the root to `end` as used, in this order: deeper is later."""
        tick = self._tick = self._tick + _DEEPEST_PATH
        node: RadixNode | None = end
        while node is not None:
            node.last_used_tick = tick
            tick -= 1
            node = node.parent

    def use(self, node: RadixNode) -> None:
        """Mark a node as used now."""
        self._tick += 1
        node.last_used_tick = self._tick

    # ---- eviction ------------------------------------------------------------------------------

    def evict(self, num_tokens: int) -> int:
        num_evicted = 0
        while num_evicted < num_tokens:
            leaf = self._leaves.pop()
            if leaf is None or leaf.parent is None:
                break
            num_evicted += leaf.num_tokens
            self._evict_leaf(leaf, leaf.parent)
            self._leaves.offer(leaf.parent)
        return num_evicted

    def evict_unlocked_leaf(self, leaf: RadixNode) -> None:
        """Evict a leaf out of its turn."""
        parent = leaf.required_parent()
        self._evict_leaf(leaf, parent)
        leaf.num_locks = 1  # so that the queue of leaves drops it
        self._leaves.offer(parent)

    def _evict_leaf(self, leaf: RadixNode, parent: RadixNode) -> None:
        for part in self._parts:
            part.drop(leaf)
        if self._events is not None:
            self._events.removed(leaf)
        del parent.children[leaf.key]
        leaf.on_device = False
        if leaf.is_watched:
            self.changes.append((leaf, None))
        self._pool.free(leaf.pages)
        self.evictable_tokens -= leaf.num_tokens
        leaf.forget_tokens()
