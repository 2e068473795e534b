"""The radix cache: KV pages in a tree over token ids; nodes consist of whole pages.

Follows SGLang 0.5.23's unified radix cache: when nodes count as used, where they are split and
which leaf is evicted first (docs/explanation/sglang.md, rules 12 and 14). Deliberate difference:
`match` changes nothing. SGLang's match also marks nodes as used and splits them; here `touch` does
this.
"""

from sim.core.errors import InvariantError
from sim.core.tokens import LazyTokens, TokenSequence, kept_part, num_common_tokens, page_key
from sim.engine.cache_events import CacheListener
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.events import TreeEvents
from sim.sglang.cache.eviction import LeafQueue, LruLeafQueue
from sim.sglang.cache.prefix_cache import PrefixCache, PrefixMatch
from sim.sglang.cache.radix_node import ChildKey, RadixNode

# Every use of a path advances the clock by this many ticks: more than any path has nodes, so that
# each node gets a tick of its own.
_DEEPEST_PATH = 1 << 24


class RadixCache(PrefixCache):
    """A prefix cache that owns pages of `pool` and frees them by evicting leaves.

    Attributes:
        changes: what has happened to watched nodes: a node with the key of its new child, or an
            evicted node with None. Whoever watches nodes empties the list.
    """

    def __init__(self, pool: PagePool, leaves: LeafQueue | None = None) -> None:
        """`leaves` is an empty queue of the eviction policy; None: least recently used first."""
        super().__init__()
        self._pool = pool
        self._page_size = pool.page_size
        self._leaves = LruLeafQueue() if leaves is None else leaves
        self._counts_uses = self._leaves.counts_uses
        self.keeps_priorities = self._leaves.keeps_priorities
        self._tick = 0
        self._num_ranks = 0
        self.changes: list[tuple[RadixNode, ChildKey | None]] = []
        self._events: TreeEvents | None = None

    def listen(self, listener: CacheListener) -> None:
        self._events = TreeEvents(listener, self._page_size)

    # ---- queries -------------------------------------------------------------------------------

    def match(
        self, token_ids: TokenSequence, limit: int, start: RadixNode | None = None
    ) -> PrefixMatch:
        limit = min(limit, len(token_ids)) // self._page_size * self._page_size
        node = start or self.root
        # If `start` was evicted, its ancestors may still be cached: leaves are evicted first.
        while not node.on_device or node.end > limit:
            if node.parent is None:
                raise InvariantError("the root was evicted")
            node = node.parent
        while node.end < limit and node.children:
            self._key_only_child(node)
            child = node.children.get(self._child_key(token_ids, node.end))
            if child is None:
                break
            num_tokens = self._num_common_tokens(child, token_ids, node.end, limit)
            if num_tokens < child.num_tokens:
                return PrefixMatch(node, child, num_tokens)
            node = child
        return PrefixMatch(node)

    def _child_key(self, token_ids: TokenSequence, start: int) -> ChildKey:
        """The key under which a parent finds the child whose tokens begin at `start`."""
        if isinstance(token_ids, LazyTokens):
            return token_ids.page_key(start, self._page_size)
        return page_key(token_ids[start : start + self._page_size])

    def _num_common_tokens(
        self, node: RadixNode, token_ids: TokenSequence, start: int, limit: int
    ) -> int:
        """How many of the node's tokens equal `token_ids[start:limit]`, floored to whole pages."""
        num_tokens = min(limit - start, node.num_tokens)
        num_common = num_common_tokens(node.token_ids, token_ids, start, num_tokens)
        if num_common is not None:
            return num_common // self._page_size * self._page_size
        self._expand(node)
        differs = node.token_ids[:num_tokens] != token_ids[start : start + num_tokens]
        first = int(differs.argmax())
        if differs[first]:
            num_tokens = first
        return num_tokens // self._page_size * self._page_size

    def _expand(self, node: RadixNode) -> None:
        """Store the node's tokens as an array, because they are likely to be compared again."""
        if isinstance(node.token_ids, LazyTokens):
            node.token_ids = node.token_ids[:]

    def _key_only_child(self, node: RadixNode) -> None:
        """Compute the key of an only child, if it has none yet.

        Keys are computed late because many leaves are evicted before any request looks for them.
        """
        if len(node.children) != 1:
            return
        (child,) = node.children.values()
        if child.key is child:
            child.key = self._child_key(child.token_ids, 0)
            node.children = {child.key: child}

    # ---- use -----------------------------------------------------------------------------------

    def touch(self, match: PrefixMatch) -> RadixNode:
        end = match.node
        if match.child is not None:
            end = self._split(match.child, match.num_child_tokens)
        self._use_path(end)
        return end

    def count_use(self, node: RadixNode, since: int) -> None:
        if self._counts_uses:
            self._leaves.count_path(node, since)

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
        rest = pages
        key: ChildKey | None = None
        while node.end < len(token_ids) and node.children:
            self._key_only_child(node)
            key = self._child_key(token_ids, node.end)
            child = node.children.get(key)
            if child is None:
                break
            key = None
            self._use(child)
            num_tokens = self._num_common_tokens(child, token_ids, node.end, len(token_ids))
            node = child
            if num_tokens < child.num_tokens:
                node = self._split(child, num_tokens)
            num_duplicates = (node.end - max(owned_from, node.end - num_tokens)) // self._page_size
            if num_duplicates > 0:
                duplicates, rest = rest.split(num_duplicates)
                self._pool.free(duplicates)
                self._freed_duplicates(node)
        num_cached = node.end
        if num_cached < len(token_ids):
            leaf_ids = kept_part(token_ids, num_cached, len(token_ids))
            node = self._add_leaf(node, leaf_ids, rest, key)
            self._added_leaf(node)
            if self._events is not None:
                self._events.stored(token_ids, num_cached)
        return node, num_cached

    def _freed_duplicates(self, node: RadixNode) -> None:
        """An insertion came to a cached node, and freed pages of the same tokens."""

    def _added_leaf(self, leaf: RadixNode) -> None:
        """An insertion has ended with a new leaf."""

    def _add_leaf(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span, key: ChildKey | None
    ) -> RadixNode:
        """Add a leaf; without a `key` it must be an only child, see `_key_only_child`."""
        leaf = RadixNode(token_ids, pages, parent.end + len(token_ids), parent, self._num_ranks)
        leaf.key = leaf if key is None else key
        self._num_ranks += 1
        self._use(leaf)
        parent.children[leaf.key] = leaf
        if parent.is_watched:
            self._key_only_child(parent)
            self.changes.append((parent, leaf.key))
        self.evictable_tokens += len(token_ids)
        self._leaves.offer(leaf)
        return leaf

    def _split(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Split a node; returns the new upper part. The old object becomes the lower part."""
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
        self._use(upper)
        self._use(node)
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

    def _use(self, node: RadixNode) -> None:
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

    def _evict_leaf(self, leaf: RadixNode, parent: RadixNode) -> None:
        if self._events is not None:
            self._events.removed(leaf)
        del parent.children[leaf.key]
        leaf.on_device = False
        if leaf.is_watched:
            self.changes.append((leaf, None))
        self._pool.free(leaf.pages)
        self.evictable_tokens -= leaf.num_tokens
        leaf.forget_tokens()
