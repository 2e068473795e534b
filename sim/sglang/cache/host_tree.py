"""Host memory below the radix cache: KV evicted from the device may be loaded back.

Follows SGLang 0.5.23's hierarchical cache (mem_cache/unified_radix_cache.py; rules and differences
are in docs/explanation/host-memory.md). Nodes on the device form the top of the tree: below a node
that is in host memory alone, no node is on the device. A node's `children` are on the device; its
`host.children` are in host memory alone.
"""

from sim.core.tokens import TokenSequence, kept_part
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.eviction import LeafQueue
from sim.sglang.cache.host_copies import HostCopies, Transfer
from sim.sglang.cache.host_memory import HostMemory
from sim.sglang.cache.host_settings import HostCacheSettings
from sim.sglang.cache.pool_copies import PoolCopies
from sim.sglang.cache.pool_tree import PoolTree
from sim.sglang.cache.prefix_cache import MatchEnd, PrefixMatch
from sim.sglang.cache.radix_cache import RadixCache
from sim.sglang.cache.radix_node import HostNodeState, RadixNode
from sim.sglang.cache.tree_part import LowerTier
from sim.sglang.cache.unit_pool import UnitPool


class HostTree(LowerTier):
    """Copies nodes of a tree to host memory, and loads them back.

    Attributes:
        settings: when nodes are copied, and which are loaded back.
        memory: the host memory.
        transfers: copies that run, or are about to start.
    """

    def __init__(
        self,
        tree: RadixCache,
        pool: PagePool,
        leaves: LeafQueue,
        settings: HostCacheSettings,
        host_pool: PagePool,
    ) -> None:
        """`pool` and `leaves` are those of the tree."""
        self.settings = settings
        self.memory = HostMemory(host_pool, leaves)
        self.transfers = HostCopies(settings.copy_ns_per_token)
        self._tree = tree
        self._pool = pool
        self._page_size = pool.page_size
        self._parts: list[PoolCopies] = self.memory.parts
        self._writes_back = settings.write_after_uses is None
        tree.attach(self, counts_uses=not self._writes_back or leaves.counts_with_write_back)

    def add_part(self, part: PoolTree, num_units: int, copy_tokens: float, num_loads: int) -> None:
        """Copy what nodes hold in the pool of a part, too; see `PoolCopies`."""
        copies = PoolCopies(part, UnitPool(num_units), self, copy_tokens, num_loads)
        self._parts.append(copies)

    # ---- time ----------------------------------------------------------------------------------

    def begin_decision(self, now_ns: int, device_free_ns: int) -> None:
        """Unlock what was being copied until now. A decision begins.

        Args:
            now_ns: the time.
            device_free_ns: when the steps launched so far end.
        """
        stored, loaded = self.transfers.begin_decision(now_ns, device_free_ns)
        for transfer in stored:
            self._end_store(transfer.end)
            self._tree.unlock_with_parts(transfer.lock)
        for transfer in loaded:
            self._tree.unlock_with_parts(transfer.lock)
            self.unlock_copies(transfer.end, transfer.copy_starts)
            self._end_load(transfer.end)

    def next_change_ns(self, now_ns: int) -> int | None:
        """When a decision may find a copy to have ended; `now_ns` if one is yet to be started.

        None: nothing is being copied.
        """
        return now_ns if self.transfers.unstarted else self.transfers.next_end_ns

    # ---- nodes ---------------------------------------------------------------------------------

    def continue_match(
        self, match: PrefixMatch, token_ids: TokenSequence, limit: int
    ) -> PrefixMatch:
        node = match.node
        while node.end < limit and node.host.children:
            child = node.host.children.get(self._tree.child_key(token_ids, node.end))
            if child is None:
                break
            num_tokens = self._tree.num_common_tokens(child, token_ids, node.end, limit)
            if num_tokens < child.num_tokens:
                return PrefixMatch(match.node, host=MatchEnd(node, child, num_tokens))
            node = child
        if node is match.node:
            return match
        return PrefixMatch(match.node, host=MatchEnd(node, None, 0))

    def new_node(self, node: RadixNode) -> None:
        node.host = HostNodeState()

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        above, below = HostNodeState(), lower.host
        upper.host = above
        above.num_uses, above.num_locks = below.num_uses, below.num_locks
        above.stored_with, above.loaded_with = below.stored_with, below.loaded_with
        if below.pages is not None:
            above.pages, below.pages = below.pages.split(upper.num_tokens // self._page_size)
        self.memory.was_split(lower)
        if self._writes_back:
            self.memory.note_redundant(upper)

    def split_evicted(self, node: RadixNode, num_tokens: int) -> RadixNode:
        upper = self._tree.cut_tokens(node, num_tokens)
        upper.required_parent().host.children[upper.key] = upper
        node.key = self._tree.child_key(node.token_ids, 0)
        upper.host.children[node.key] = node
        return upper

    def bring_back(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span
    ) -> tuple[RadixNode, Span]:
        while len(token_ids):
            child = parent.host.children.get(self._tree.child_key(token_ids, 0))
            if child is None:
                break
            self._tree.use(child)
            num_tokens = self._tree.num_common_tokens(child, token_ids, 0, len(token_ids))
            if num_tokens < child.num_tokens:
                child = self.split_evicted(child, num_tokens)
            given, pages = pages.split(num_tokens // self._page_size)
            self._return_pages(child, given)
            if self._writes_back:
                self.memory.note_redundant(child)
            self._tree.tell_brought_back(child)
            parent, token_ids = child, kept_part(token_ids, num_tokens, len(token_ids))
        return parent, pages

    def _return_pages(self, node: RadixNode, pages: Span) -> None:
        self.memory.promote(node, node.required_parent())
        self._tree.return_pages(node, pages)

    # ---- copies to host memory -----------------------------------------------------------------

    def count_use(self, end: RadixNode, since: int) -> None:
        """Count a use, and copy nodes that were used often enough, parents first."""
        uses_to_copy = self.settings.write_after_uses
        if uses_to_copy is None:
            return
        used = []
        node, skipped = end, self._tree.uncounted
        while node.parent is not None and node.end > since:
            if node not in skipped:
                node.host.num_uses += 1
                used.append(node)
            node = node.parent
        for node in reversed(used):
            if node.host.num_uses >= uses_to_copy and node.host.pages is None:
                self._write_through(node)

    def _write_through(self, node: RadixNode) -> None:
        """Copy a node and its ancestors without a copy: all ancestors of a copy have copies."""
        missing = [node]
        above = node.required_parent()
        while above.parent is not None and above.host.pages is None:
            missing.append(above)
            above = above.parent
        for above in reversed(missing):
            if not self._store(above):
                return

    def inserted_again(self, node: RadixNode) -> None:
        """Under write-through: copy what an insertion has given to parts of a node with a copy."""
        host = node.host
        if self._writes_back or host.pages is None or host.stored_with is not None:
            return
        if any(part.tree.nodes_to_copy(node) for part in self._parts):
            self._write_through(node)

    def _store(self, node: RadixNode) -> bool:
        """Begin to copy a node, which is locked until then; False: too little can be freed."""
        copied = self._copy(node)
        if copied is None:
            return False
        num_tokens, nodes = copied
        if num_tokens and self.transfers.take_time:
            for other in nodes:
                other.host.stored_with = node
            self.transfers.add_store(
                Transfer(node, self._tree.lock_with_parts(node), []), num_tokens
            )
        return True

    def _copy(self, node: RadixNode) -> tuple[float, list[RadixNode]] | None:
        """Copy what host memory lacks of a node on the device; of its parts, see `nodes_to_copy`.

        Returns:
            How many tokens of all layers take as long to copy, and the nodes of which something is
            copied. None: too little could be freed in host memory, and nothing is copied.
        """
        missing = [part.tree.nodes_to_copy(node) for part in self._parts]
        num_tokens, is_new = 0.0, node.host.pages is None
        if is_new:
            if not self.memory.store(node):
                return None
            num_tokens = node.num_tokens * self.settings.full_share
        # States are reserved before windows (SGLang sorts the pools by name).
        reserved: list[tuple[PoolCopies, int]] = []
        for part, nodes in reversed(list(zip(self._parts, missing, strict=True))):
            num_units = part.num_units(nodes)
            if num_units and not part.reserve(num_units):
                for other, num_reserved in reserved:
                    other.pool.free(num_reserved)
                if is_new:
                    self.memory.forget(node)
                return None
            reserved.append((part, num_units))
            num_tokens += num_units * part.copy_tokens
        copied = [node]
        for part, nodes in zip(self._parts, missing, strict=True):
            part.store(nodes)
            copied += nodes
        return num_tokens, copied

    def _end_store(self, end: RadixNode) -> None:
        node = end
        while node.parent is not None:
            if node.host.stored_with is end:
                node.host.stored_with = None
            node = node.parent

    # ---- eviction from the device --------------------------------------------------------------

    def save(self, leaf: RadixNode) -> bool:
        if self._writes_back and leaf.host.pages is None:
            self._write_back(leaf)
        return leaf.host.pages is not None

    def save_for(self, copies: PoolCopies, node: RadixNode) -> None:
        """Under write-back, copy an inner node of which nothing is copied.

        As in SGLang 0.5.23 (`_evict_device_next_node` of mem_cache/unified_radix_cache.py).
        """
        if not self._writes_back or node.host.pages is not None or copies.has_copy(node):
            return
        num_units = copies.num_units(copies.tree.nodes_to_copy(node))
        if copies.pool.free_units < num_units:
            copies.evict(num_units)
        self._write_back(node)

    def _write_back(self, node: RadixNode) -> None:
        """Copy a node, and wait until it is done."""
        copied = self._copy(node)
        if copied is not None:
            num_tokens, nodes = copied
            self.transfers.wait_for_store(num_tokens)
            for other in nodes:
                self.memory.note_redundant(other)

    def evict_leaf(self, node: RadixNode) -> bool:
        return self.memory.evict_leaf(node)

    def demote(self, leaf: RadixNode, parent: RadixNode) -> None:
        self.memory.demote(leaf, parent)
        for part in self._parts:
            part.note_alone(leaf)

    def drop(self, leaf: RadixNode) -> None:
        # Without this node, the nodes below it in host memory cannot be reached.
        self.memory.drop_below(leaf)

    # ---- loads ---------------------------------------------------------------------------------

    def lock_copies(self, end: RadixNode) -> list[int]:
        """Protect the copies that a load up to this node needs; `unlock_copies` takes the list."""
        return [self.memory.lock(end), *[part.lock(end) for part in self._parts]]

    def unlock_copies(self, end: RadixNode, starts: list[int]) -> None:
        for part, start in zip(self._parts, starts[1:], strict=True):
            part.unlock(end, start)
        self.memory.unlock(end, starts[0])

    def load(self, end: RadixNode) -> float | None:
        """Load what a prefix that ends at this node needs, all of it or nothing.

        What is on the device of it must be locked already.

        Returns:
            How many tokens of all layers take as long to load. None: nothing was loaded, because
            the part in host memory is too short, or because too little could be freed for it on
            the device. In the second case other nodes may have been evicted.
        """
        path = _nodes_to_load(end)
        missing = [part.tree.nodes_to_load(end) for part in self._parts]
        num_tokens = sum([node.num_tokens for node in path])
        if num_tokens < max(self.settings.load_back_threshold_tokens, 1) and not any(missing):
            return None
        if self._writes_back and any(
            node.host.loaded_with not in {None, end} for nodes in missing for node in nodes
        ):
            return None
        pages = self._reserve(num_tokens, missing)
        if pages is None:
            return None
        cost_tokens = num_tokens * self.settings.full_share
        for node in reversed(path):
            given, pages = pages.split(node.num_tokens // self._page_size)
            self._return_pages(node, given)
            node.host.loaded_with = end
        for part, nodes in zip(self._parts, missing, strict=True):
            for node in reversed(nodes):
                part.tree.hold(node)
            cost_tokens += part.num_units(nodes) * part.copy_tokens * part.num_loads
        self._tree.tell_loaded(end, num_tokens)
        if self.transfers.take_time:
            lock, starts = self._tree.lock_with_parts(end), self.lock_copies(end)
            self.transfers.add_load(Transfer(end, lock, starts), cost_tokens)
        else:
            self._end_load(end)
        return cost_tokens

    def _reserve(self, num_tokens: int, missing: list[list[RadixNode]]) -> Span | None:
        """Pages, and units of the parts' pools for these nodes; None: too little can be freed."""
        self._tree.evict(num_tokens - self._pool.num_free_pages * self._page_size)
        if num_tokens > self._pool.num_free_pages * self._page_size:
            return None
        num_pages = num_tokens // self._page_size
        self._pool.promise(num_pages)
        pages = self._pool.redeem(num_pages)
        taken: list[tuple[UnitPool, int]] = []
        for part, nodes in zip(self._parts, missing, strict=True):
            pool, num_units = part.tree.pool, part.num_units(nodes)
            part.tree.evict_until_free(num_units)
            if pool.free_units < num_units:
                for other, num_taken in taken:
                    other.free(num_taken)
                self._pool.free(pages)
                return None
            pool.take(num_units)
            taken.append((pool, num_units))
        return pages

    def _end_load(self, end: RadixNode) -> None:
        """The nodes up to `end` that one load has brought are there: their copies are redundant."""
        node = end
        while node.parent is not None:
            if node.host.loaded_with is end:
                node.host.loaded_with = None
                if self._writes_back:
                    self.memory.note_redundant(node)
            node = node.parent


def _nodes_to_load(end: RadixNode) -> list[RadixNode]:
    """The nodes of a path that are not on the device; the last one first."""
    path, node = [], end
    while not node.on_device:
        path.append(node)
        node = node.required_parent()
    return path
