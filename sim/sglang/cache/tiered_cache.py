"""The radix cache with host memory below it: KV evicted from the device may be loaded back.

Follows SGLang 0.5.23's hierarchical cache; rules and differences are in
docs/explanation/host-memory.md. Nodes on the device form the top of the tree: below a node that is
in host memory alone, no node is on the device. A node's `children` are on the device; its
`host.children` are in host memory alone.
"""

from sim.core.tokens import TokenSequence, kept_part
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.eviction import LeafQueue
from sim.sglang.cache.host_copies import HostCopies
from sim.sglang.cache.host_memory import HostMemory
from sim.sglang.cache.host_settings import HostCacheSettings
from sim.sglang.cache.prefix_cache import MatchEnd, PrefixMatch
from sim.sglang.cache.radix_cache import RadixCache
from sim.sglang.cache.radix_node import ChildKey, HostNodeState, RadixNode


class TieredRadixCache(RadixCache):
    """A radix cache whose nodes are on the device, in host memory, or in both.

    Attributes:
        settings: when nodes are copied, and which are loaded back.
        memory: the host memory.
        copies: copies that run, or are about to start.
    """

    def __init__(
        self,
        pool: PagePool,
        leaves: LeafQueue | None = None,
        *,
        settings: HostCacheSettings,
        host_pool: PagePool,
    ) -> None:
        super().__init__(pool, leaves)
        self.settings = settings
        self.root.host = HostNodeState()
        self.memory = HostMemory(host_pool, self._leaves)
        self.copies = HostCopies(settings.copy_ns_per_token)
        self._writes_back = settings.write_after_uses is None

    def begin_decision(self, now_ns: int, device_free_ns: int) -> None:
        """Unlock what was being copied until now. A decision begins.

        Args:
            now_ns: the time.
            device_free_ns: when the steps launched so far end.
        """
        stored, loaded = self.copies.begin_decision(now_ns, device_free_ns)
        for node in stored:
            self.unlock(node)
        for node in loaded:
            self.unlock(node)
            self._end_load(node)

    def next_change_ns(self, now_ns: int) -> int | None:
        """When a decision may find a copy to have ended; `now_ns` if one is yet to be started.

        None: nothing is being copied.
        """
        return now_ns if self.copies.unstarted else self.copies.next_end_ns

    # ---- queries -------------------------------------------------------------------------------

    def match(
        self, token_ids: TokenSequence, limit: int, start: RadixNode | None = None
    ) -> PrefixMatch:
        match = super().match(token_ids, limit, start)
        limit = min(limit, len(token_ids)) // self._page_size * self._page_size
        if match.child is not None or match.node.end == limit:
            return match
        node = match.node
        while node.end < limit:
            child = node.host.children.get(self._child_key(token_ids, node.end))
            if child is None:
                break
            num_tokens = self._num_common_tokens(child, token_ids, node.end, limit)
            if num_tokens < child.num_tokens:
                return PrefixMatch(match.node, host=MatchEnd(node, child, num_tokens))
            node = child
        if node is match.node:
            return match
        return PrefixMatch(match.node, host=MatchEnd(node, None, 0))

    # ---- use -----------------------------------------------------------------------------------

    def touch_host(self, match: PrefixMatch) -> RadixNode | None:
        """After `touch`, mark the part of a match in host memory as used.

        Returns:
            The node at its end; a node is split if the match ends inside it. None: no part is in
            host memory.
        """
        if match.host is None:
            return None
        end = match.host.node
        if match.host.child is not None:
            end = self._split_on_host(match.host.child, match.host.num_child_tokens)
        self._use_path(end)
        return end

    def count_use(self, node: RadixNode, since: int) -> None:
        """As in `PrefixCache`; also copies nodes that were used often enough, parents first."""
        if not self._writes_back or self._leaves.counts_with_write_back:
            super().count_use(node, since)
        uses_to_copy = self.settings.write_after_uses
        if uses_to_copy is None:
            return
        used = []
        current: RadixNode = node
        while current.parent is not None and current.end > since:
            current.host.num_uses += 1
            used.append(current)
            current = current.parent
        for current in reversed(used):
            if current.host.num_uses >= uses_to_copy:
                self._write_through(current)

    def _write_through(self, node: RadixNode) -> None:
        """Copy a node and its ancestors without a copy: all ancestors of a copy have copies.

        They stay on the device until they are copied.
        """
        missing = []
        while node.parent is not None and node.host.pages is None:
            missing.append(node)
            node = node.parent
        for above in reversed(missing):
            if not self.memory.store(above):
                return
            if self.copies.take_time:
                self.lock(above)
                self.copies.add_store(above)

    # ---- growth --------------------------------------------------------------------------------

    def _add_leaf(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span, key: ChildKey | None
    ) -> RadixNode:
        """Add tokens below `parent`, with their pages.

        Nodes that host memory already has for these tokens come back to the device and get the
        pages. A new leaf gets the rest.
        """
        while len(token_ids):
            # Host memory finds a node by its key, so the key must be computed now.
            key = self._child_key(token_ids, 0)
            child = parent.host.children.get(key)
            if child is None:
                leaf = super()._add_leaf(parent, token_ids, pages, key)
                leaf.host = HostNodeState()
                return leaf
            self.use(child)
            num_tokens = self._num_common_tokens(child, token_ids, 0, len(token_ids))
            if num_tokens < child.num_tokens:
                child = self._split_on_host(child, num_tokens)
            given, pages = pages.split(num_tokens // self._page_size)
            self._bring_back(child, given)
            if self._writes_back:
                self.memory.note_redundant(child)
            parent, token_ids = child, kept_part(token_ids, num_tokens, len(token_ids))
        return parent

    def split(self, node: RadixNode, num_tokens: int) -> RadixNode:
        upper = super().split(node, num_tokens)
        self._key_only_child(upper)
        self._split_copy(upper, node, num_tokens)
        self.memory.was_split(node)
        if self._writes_back:
            self.memory.note_redundant(upper)
        return upper

    def _split_copy(self, upper: RadixNode, lower: RadixNode, num_tokens: int) -> None:
        upper.host = HostNodeState()
        upper.host.num_uses = lower.host.num_uses
        upper.host.loaded_with = lower.host.loaded_with
        if lower.host.pages is not None:
            pages = lower.host.pages.split(num_tokens // self._page_size)
            upper.host.pages, lower.host.pages = pages

    def _split_on_host(self, node: RadixNode, num_tokens: int) -> RadixNode:
        """Split a node that is in host memory alone; returns the new upper part."""
        upper = self._cut_tokens(node, num_tokens)
        upper.on_device = False
        self._split_copy(upper, node, num_tokens)
        upper.required_parent().host.children[upper.key] = upper
        node.key = self._child_key(node.token_ids, 0)
        upper.host.children[node.key] = node
        self.memory.was_split(node)
        return upper

    def _bring_back(self, node: RadixNode, pages: Span) -> None:
        """Put a node that is in host memory alone back on the device; its parent is there."""
        parent = node.required_parent()
        self.memory.promote(node, parent)
        parent.children[node.key] = node
        node.on_device = True
        node.pages = pages
        self.evictable_tokens += node.num_tokens
        self._leaves.offer(node)

    # ---- eviction and loading ------------------------------------------------------------------

    def _evict_leaf(self, leaf: RadixNode, parent: RadixNode) -> None:
        if self._events is not None:
            self._events.removed(leaf)
        if self._writes_back and leaf.host.pages is None and self.memory.store(leaf):
            self.copies.wait_for_store(leaf.num_tokens)
            self.memory.note_redundant(leaf)
        del parent.children[leaf.key]
        leaf.on_device = False
        self._pool.free(leaf.pages)
        leaf.pages = self._pool.empty
        self.evictable_tokens -= leaf.num_tokens
        if leaf.host.pages is not None:
            self.memory.demote(leaf, parent)
        else:
            # Without this node, the nodes below it in host memory cannot be reached.
            self.memory.drop_below(leaf)
            leaf.forget_tokens()

    def load(self, end: RadixNode) -> bool:
        """Load the nodes from `end` up to the first one on the device, all of them or none.

        The part of the path on the device must be locked.

        Returns:
            False: nothing was loaded, because the part in host memory is too short, or because the
            pool has no room for all of it. In the second case other nodes may have been evicted.
        """
        path = []
        node = end
        while not node.on_device and node.parent is not None:
            path.append(node)
            node = node.parent
        num_tokens = end.end - node.end
        if num_tokens < max(self.settings.load_back_threshold_tokens, 1):
            return False
        # Eviction may copy to host memory, which could drop the nodes that are about to be loaded.
        self.memory.lock(end)
        self.evict(num_tokens - self._pool.num_free_pages * self._page_size)
        self.memory.unlock(end)
        if num_tokens > self._pool.num_free_pages * self._page_size:
            return False
        for node in reversed(path):
            num_pages = node.num_tokens // self._page_size
            self._pool.promise(num_pages)
            self._bring_back(node, self._pool.redeem(num_pages))
            node.host.loaded_with = end
        if self._events is not None:
            self._events.brought_back(end, end.end - num_tokens)
        if self.copies.take_time:
            self.lock(end)
            self.copies.add_load(end, num_tokens)
        else:
            self._end_load(end)
        return True

    def _end_load(self, end: RadixNode) -> None:
        """The nodes up to `end` that one load has brought are there: their copies are redundant."""
        node = end
        while node.parent is not None:
            if node.host.loaded_with is end:
                node.host.loaded_with = None
                if self._writes_back:
                    self.memory.note_redundant(node)
            node = node.parent
