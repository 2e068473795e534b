"""The radix cache: KV pages in a tree over token ids; nodes consist of whole pages.

Follows SGLang 0.5.23's unified radix cache: when nodes count as used, where they are split and
which leaf is evicted first (docs/explanation/sglang.md, rules 12 and 14). Deliberate difference:
`match` changes nothing. SGLang's match also marks nodes as used and splits them; here `touch` does
this.
"""

from sim.core.block_keys import BlockKeys
from sim.core.tokens import TokenIds, TokenSequence, kept_part
from sim.engine.page_pool import CacheListener, PagePool, Span
from sim.sglang.cache.tree.prefix_cache import LowerTier
from sim.sglang.cache.tree.radix_node import (
    ChildKey,
    LeafQueue,
    LruLeafQueue,
    PrefixMatch,
    RadixNode,
)
from sim.sglang.cache.tree.radix_tree import RadixTree


class RadixCache(RadixTree):
    """A prefix cache that owns pages of `pool` and frees them by evicting leaves.

    Attributes:
        uncounted: nodes on the path of the last insertion of which it counts no use.
    """

    def __init__(self, pool: PagePool, leaves: LeafQueue | None = None) -> None:
        """`leaves` is an empty queue of the eviction policy; None: least recently used first."""
        super().__init__(pool.page_size, LruLeafQueue() if leaves is None else leaves)
        self.pool = pool
        self._counts_uses = self.leaves.counts_uses
        self.keeps_priorities = self.leaves.keeps_priorities
        self._num_ranks = 0
        self.uncounted: list[RadixNode] = []
        self._events: TreeEvents | None = None

    def attach(self, host: LowerTier, *, counts_uses: bool) -> None:
        """Keep evicted nodes in host memory; the cache must be empty, and without parts.

        `counts_uses`: the eviction policy counts uses all the same, if it counts any.
        """
        self._host = host
        self._counts_uses = self._counts_uses and counts_uses
        host.new_node(self.root)

    def listen(self, listener: CacheListener) -> None:
        self._events = TreeEvents(listener, self._page_size)

    # ---- use -----------------------------------------------------------------------------------

    def touch(self, match: PrefixMatch) -> RadixNode:
        found = match.node
        if match.child is not None:
            found = self.split(match.child, match.num_child_tokens)
        last, host = match.full, match.host
        if host is not None and host.child is not None:
            match.end = self.split(host.child, host.num_child_tokens)
        else:
            match.end = found if host is None else host.node
            if last is not None and last.child is not None:
                self.split(last.child, last.num_child_tokens)
        self._use_path(match.end)
        for part in self._parts:
            part.used(match.end)
        return found

    def count_use(self, node: RadixNode, since: int) -> None:
        if self._counts_uses:
            self.leaves.count_path(node, since, self.uncounted)
        if self._host is not None:
            self._host.count_use(node, since)

    def inserted_again(self, node: RadixNode) -> None:
        if self._host is not None:
            self._host.inserted_again(node)

    def note_priority(self, node: RadixNode, priority: int) -> None:
        self.leaves.note_priority(node, priority)

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
            key = self.child_key(node, token_ids, node.end)
            child = node.children.get(key)
            if child is None:
                break
            key = None
            self.use(child)
            num_tokens = self.num_common_tokens(child, token_ids, node.end, len(token_ids))
            node = child
            if num_tokens < child.num_tokens:
                node = self.split(child, num_tokens)
            num_duplicates = (node.end - max(owned_from, node.end - num_tokens)) // self._page_size
            if num_duplicates > 0:
                rest = self._free_duplicates(node, num_duplicates, rest)
        num_cached = node.end
        self.new_leaf = None
        if num_cached < len(token_ids):
            node = self._insert_rest(node, token_ids, rest, key)
        for part in self._parts:
            part.end_insert(node)
        return node, num_cached

    def _free_duplicates(self, node: RadixNode, num_duplicates: int, pages: Span) -> Span:
        """Free the first pages, whose tokens this node has; returns the others."""
        duplicates, rest = pages.split(num_duplicates)
        self.pool.free(duplicates)
        for part in self._parts:
            part.overlapped(node)
        return rest

    def _insert_rest(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span, key: ChildKey | None
    ) -> RadixNode:
        """Add the tokens that follow those of a node: bring nodes back, and add a leaf."""
        node, start = parent, parent.end
        if self._host is not None and node.host.children:
            left = kept_part(token_ids, start, len(token_ids))
            node, pages = self._host.bring_back(node, left, pages)
            if node is not parent:
                key = None
        if node.end < len(token_ids):
            leaf_ids = kept_part(token_ids, node.end, len(token_ids))
            self.new_leaf = node = self._add_leaf(node, leaf_ids, pages, key)
            for part in self._parts:
                part.added_leaf(node)
        if self._events is not None:
            self._events.stored(parent, token_ids)
        return node

    def _add_leaf(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span, key: ChildKey | None
    ) -> RadixNode:
        """Add a leaf; without a `key` it must be an only child, see `_key_only_child`."""
        leaf = RadixNode(token_ids, pages, parent.end + len(token_ids), parent, self._num_ranks)
        leaf.key = leaf if key is None else key
        self._num_ranks += 1
        if self._host is not None:
            self._host.new_node(leaf)
        for part in self._parts:
            part.new_node(leaf)
        self.use(leaf)
        parent.children[leaf.key] = leaf
        if parent.is_watched:
            self._key_only_child(parent)
            self.changes.append((parent, leaf.key))
        self.evictable_tokens += len(token_ids)
        self.leaves.offer(leaf)
        return leaf

    def split(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Split a node; returns the new upper part. The old object becomes the lower part."""
        if self._host is not None and not node.on_device:
            return self._host.split_evicted(node, num_tokens)
        self._key_only_child(node.required_parent())
        upper = self.cut_tokens(node, num_tokens)
        upper.pages, node.pages = node.pages.split(num_tokens // self._page_size)
        upper.required_parent().children[upper.key] = upper
        node.key = node
        upper.children[node.key] = node
        return upper

    def cut_tokens(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Move the first tokens of a node to a new parent.

        The caller splits the pages, and adds both parts to the `children` of their parents.
        """
        parent = node.required_parent()
        upper = RadixNode(
            kept_part(node.token_ids, 0, num_tokens),
            self.pool.empty,
            parent.end + num_tokens,
            parent,
            node.rank,
        )
        upper.on_device = node.on_device
        upper.num_locks = node.num_locks
        upper.use_score = node.use_score
        upper.key = node.key
        node.token_ids = kept_part(node.token_ids, num_tokens, node.num_tokens)
        node.num_tokens -= num_tokens
        node.parent = upper
        # A split counts as a use of both parts, of the lower one last (rule 12).
        self.use(upper)
        self.use(node)
        if self._host is not None:
            self._host.split(upper, node)
        for part in self._parts:
            part.split(upper, node)
        if self.leaves.falls_by_split:
            self.leaves.was_split(node)
        return upper

    # ---- eviction ------------------------------------------------------------------------------

    def evict(self, num_tokens: int) -> int:
        num_evicted = 0
        kept: list[RadixNode] = []
        while num_evicted < num_tokens:
            leaf = self.leaves.pop()
            if leaf is None or leaf.parent is None:
                break
            num_leaf_tokens = leaf.num_tokens
            if not self._evict_leaf(leaf, leaf.parent):
                kept.append(leaf)
                continue
            num_evicted += num_leaf_tokens
            self.leaves.offer(leaf.parent)
        for leaf in kept:
            self.leaves.offer(leaf)
        return num_evicted

    def evict_unlocked_leaf(self, leaf: RadixNode) -> None:
        parent = leaf.required_parent()
        self._evict_leaf(leaf, parent)
        self.leaves.offer(parent)

    def _evict_leaf(self, leaf: RadixNode, parent: RadixNode) -> bool:
        """Evict a leaf; False: it stays, because host memory can neither keep it nor do without."""
        is_kept = self._host is not None and self._host.save(leaf)
        if self._host is not None and not is_kept and not self._host.may_drop(leaf):
            return False
        if self._events is not None:
            self._events.removed(leaf)
        for part in self._parts:
            part.drop(leaf)
        del parent.children[leaf.key]
        leaf.on_device = False
        if leaf.is_watched:
            self.changes.append((leaf, None))
        self.pool.free(leaf.pages)
        self.evictable_tokens -= leaf.num_tokens
        if self._host is None:
            leaf.forget_tokens()
            return True
        leaf.pages = self.pool.empty
        if is_kept:
            if leaf.key is leaf:
                leaf.key = self.child_key(parent, leaf.token_ids, 0)
            self._host.demote(leaf, parent)
        else:
            self._host.drop(leaf)
            leaf.forget_tokens()
        return True

    def add_copy(self, parent: RadixNode, token_ids: TokenSequence) -> RadixNode:
        """Add a node that is in host memory alone."""
        node = RadixNode(
            token_ids, self.pool.empty, parent.end + len(token_ids), parent, self._num_ranks
        )
        self._num_ranks += 1
        node.on_device = False
        node.key = self.child_key(parent, token_ids, 0)
        if self._host is not None:
            self._host.new_node(node)
        for part in self._parts:
            part.new_node(node)
        self.leaves.note_fetched(node, parent)
        self.use(node)
        return node

    # ---- loads from host memory ----------------------------------------------------------------

    def return_pages(self, node: RadixNode, pages: Span) -> None:
        """Put an evicted node back on the device; its parent is there."""
        parent = node.required_parent()
        self._key_only_child(parent)
        parent.children[node.key] = node
        node.on_device = True
        node.pages = pages
        self.evictable_tokens += node.num_tokens
        self.leaves.offer(node)

    def tell_brought_back(self, node: RadixNode) -> None:
        """An insertion has put an evicted node back on the device."""
        for part in self._parts:
            part.brought_back(node)

    def tell_loaded(self, end: RadixNode, num_tokens: int) -> None:
        """The last `num_tokens` tokens before the end of a node are back on the device."""
        if self._events is not None:
            self._events.brought_back(end, end.end - num_tokens)


class PathKeys:
    """The keys of a tree's pages, as `BlockKeys` makes them of a whole prompt.

    A page's key is a hash of all tokens up to its end. Each node keeps the key of its last page, so
    that only the tokens behind it are made and hashed for the pages that follow.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._keys = BlockKeys(page_size)

    def after(self, node: RadixNode, token_ids: TokenIds, start: int) -> list[int]:
        """The keys of pages of a prompt that begin at `start`, where a node's path ends."""
        num_before = start // self._page_size
        keys: list[int] = self._keys.of(token_ids, num_before, self._end_key(node)).tolist()
        return keys

    def of_node(self, node: RadixNode) -> list[int]:
        """The keys of a node's own pages."""
        parent = node.required_parent()
        keys = self.after(parent, node.token_ids[:], parent.end)
        node.end_key = keys[-1]
        return keys

    def of_path(self, node: RadixNode, start: int) -> list[int]:
        """The keys of the pages between the first `start` tokens and the end of a node."""
        path: list[RadixNode] = []
        while node.end > start:
            path.append(node)
            node = node.required_parent()
        keys = [key for each in reversed(path) for key in self.of_node(each)]
        return keys[(start - node.end) // self._page_size :]

    def _end_key(self, node: RadixNode) -> int:
        path: list[RadixNode] = []
        while node.parent is not None and not node.end_key:
            path.append(node)
            node = node.parent
        for each in reversed(path):
            self.of_node(each)
        return path[0].end_key if path else node.end_key


class TreeEvents:
    """Tells a listener of nodes that come to the device or leave it."""

    def __init__(self, listener: CacheListener, page_size: int) -> None:
        self._listener = listener
        self._keys = PathKeys(page_size)

    def stored(self, parent: RadixNode, token_ids: TokenSequence) -> None:
        """The tokens behind a node's path are on the device now."""
        if parent.end < len(token_ids):
            new_ids = token_ids[parent.end : len(token_ids)]
            self._listener.stored(self._keys.after(parent, new_ids, parent.end))

    def brought_back(self, node: RadixNode, start: int) -> None:
        """The pages of the path to `node` behind its first `start` tokens are on the device now."""
        self._listener.stored(self._keys.of_path(node, start))

    def removed(self, node: RadixNode) -> None:
        """The pages of a node leave the device; its tokens are still known."""
        self._listener.removed(self._keys.of_node(node))
