"""Host memory below the radix cache: KV evicted from the device may be loaded back.

Follows SGLang 0.5.23's hierarchical cache (mem_cache/unified_radix_cache.py; rules and differences
are in docs/explanation/host-memory.md). Nodes on the device form the top of the tree: below a node
that is in host memory alone, no node is on the device. A node's `children` are on the device; its
`host.children` are in host memory alone.
"""

from collections.abc import Iterable

from sim.core.tokens import TokenSequence, kept_part
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.host.copies import HostCopies, Transfer
from sim.sglang.cache.host.memory import HostMemory, PoolCopies
from sim.sglang.cache.pool_tree import PoolTree, UnitPool
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.cache.tree.prefix_cache import LowerTier
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import HostNodeState, MatchEnd, PrefixMatch, RadixNode


class LowerStorage:
    """Base class of what keeps copies of host memory's nodes: a store."""

    def back_up(self, node: RadixNode) -> None:
        """A node's copy in host memory is complete."""
        raise NotImplementedError

    def num_held_pages(self) -> int:
        """Pages of host memory that belong to no node yet, or to none any more."""
        raise NotImplementedError

    def num_held_units(self, copies: PoolCopies) -> int:
        """The same of a part's pool in host memory."""
        raise NotImplementedError

    def locks(self) -> Iterable[tuple[RadixNode, int]]:
        """Locks of copies, with what `HostMemory.lock` has returned."""
        raise NotImplementedError


class HostTree(LowerTier):
    """Copies nodes of a tree to host memory, and keeps them there; `HostPart` loads them back.

    Attributes:
        tree: the tree.
        settings: when nodes are copied, and which are loaded back.
        memory: the host memory.
        parts: the copies of what nodes hold in the pools of parts.
        transfers: copies that run, or are about to start.
        storage: the store below; None: there is none.
        page_size: tokens in a page.
        writes_back: nodes are copied when they are evicted, not when they are used.
    """

    def __init__(self, tree: RadixCache, settings: HostCacheSettings, host_pool: PagePool) -> None:
        self.tree = tree
        self.settings = settings
        self.memory = HostMemory(host_pool, tree.leaves)
        self.parts: list[PoolCopies] = self.memory.parts
        self.transfers = HostCopies(settings.copy_ns_per_token)
        self.page_size = host_pool.page_size
        self.storage: LowerStorage | None = None
        self.writes_back = settings.write_after_uses is None
        counts = not self.writes_back or tree.leaves.counts_with_write_back
        tree.attach(self, counts_uses=counts)

    def add_part(self, part: PoolTree, num_units: int, copy_tokens: float, num_loads: int) -> None:
        """Copy what nodes hold in the pool of a part, too; see `PoolCopies`."""
        copies = PoolCopies(
            part,
            UnitPool(num_units),
            self.memory,
            self._save_for,
            copy_tokens=copy_tokens,
            num_loads=num_loads,
        )
        self.parts.append(copies)

    # ---- nodes ---------------------------------------------------------------------------------

    def continue_match(
        self, match: PrefixMatch, token_ids: TokenSequence, limit: int
    ) -> PrefixMatch:
        node = match.node
        while node.end < limit and node.host.children:
            child = node.host.children.get(self.tree.child_key(node, token_ids, node.end))
            if child is None:
                break
            num_tokens = self.tree.num_common_tokens(child, token_ids, node.end, limit)
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
            above.pages, below.pages = below.pages.split(upper.num_tokens // self.page_size)
        self.memory.was_split(lower)
        if self.writes_back:
            self.memory.note_redundant(upper)

    def split_evicted(self, node: RadixNode, num_tokens: int) -> RadixNode:
        upper = self.tree.cut_tokens(node, num_tokens)
        upper.required_parent().host.children[upper.key] = upper
        node.key = self.tree.child_key(upper, node.token_ids, 0)
        upper.host.children[node.key] = node
        return upper

    def bring_back(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span
    ) -> tuple[RadixNode, Span]:
        while len(token_ids):
            child = parent.host.children.get(self.tree.child_key(parent, token_ids, 0))
            if child is None:
                break
            self.tree.use(child)
            num_tokens = self.tree.num_common_tokens(child, token_ids, 0, len(token_ids))
            if num_tokens < child.num_tokens:
                child = self.split_evicted(child, num_tokens)
            given, pages = pages.split(num_tokens // self.page_size)
            self.return_pages(child, given)
            if self.writes_back:
                self.memory.note_redundant(child)
            self.tree.tell_brought_back(child)
            parent, token_ids = child, kept_part(token_ids, num_tokens, len(token_ids))
        return parent, pages

    def return_pages(self, node: RadixNode, pages: Span) -> None:
        """Put an evicted node back on the device; its parent is there."""
        self.memory.promote(node, node.required_parent())
        self.tree.return_pages(node, pages)

    # ---- copies to host memory -----------------------------------------------------------------

    def count_use(self, end: RadixNode, since: int) -> None:
        """Count a use, and copy nodes that were used often enough, parents first."""
        uses_to_copy = self.settings.write_after_uses
        if uses_to_copy is None:
            return
        used = []
        node, skipped = end, self.tree.uncounted
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
        if self.writes_back or host.pages is None or host.stored_with is not None:
            return
        if any(part.tree.nodes_to_copy(node) for part in self.parts):
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
                Transfer(node, self.tree.lock_with_parts(node), []), num_tokens
            )
        else:
            self.memory.tell_stored(node)
            self._back_up(nodes)
        return True

    def _back_up(self, nodes: list[RadixNode]) -> None:
        """Copies of these nodes are complete: they go to the store, the first of a path first."""
        if self.storage is not None:
            for node in sorted(dict.fromkeys(nodes), key=_end_of):
                self.storage.back_up(node)

    def _copy(self, node: RadixNode) -> tuple[float, list[RadixNode]] | None:
        """Copy what host memory lacks of a node on the device, and `nodes_to_copy` of each part.

        Returns:
            How many tokens of all layers take as long to copy, and the nodes of which something is
            copied. None: too little could be freed in host memory, and nothing is copied.
        """
        missing = [part.tree.nodes_to_copy(node) for part in self.parts]
        num_tokens, is_new = 0.0, node.host.pages is None
        if is_new:
            if not self.memory.store(node):
                return None
            num_tokens = node.num_tokens * self.settings.full_share
        # States are reserved before windows (SGLang sorts the pools by name).
        reserved: list[tuple[PoolCopies, int]] = []
        for part, nodes in reversed(list(zip(self.parts, missing, strict=True))):
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
        for part, nodes in zip(self.parts, missing, strict=True):
            part.store(nodes)
            copied += nodes
        return num_tokens, copied

    def end_stores(self, transfers: list[Transfer]) -> list[RadixNode]:
        """These copies have ended; returns their nodes, parents first."""
        ended: list[RadixNode] = []
        for transfer in transfers:
            nodes: list[RadixNode] = []
            node = transfer.end
            while node.parent is not None:
                if node.host.stored_with is transfer.end:
                    node.host.stored_with = None
                    self.memory.tell_stored(node)
                    nodes.append(node)
                node = node.parent
            ended += reversed(nodes)
            self.tree.unlock_with_parts(transfer.lock)
        return ended

    def lock_copies(self, end: RadixNode) -> list[int]:
        """Protect the copies that a prefix needs; `unlock_copies` takes the list."""
        return [self.memory.lock(end), *[part.lock(end) for part in self.parts]]

    def unlock_copies(self, end: RadixNode, starts: list[int]) -> None:
        for part, start in zip(self.parts, starts[1:], strict=True):
            part.unlock(end, start)
        self.memory.unlock(end, starts[0])

    # ---- copies from a store -------------------------------------------------------------------

    def insert_copies(
        self, anchor: RadixNode, token_ids: TokenSequence, end: int, pages: Span
    ) -> RadixNode | None:
        """Put pages that a store had into the tree: copies of what follows a node, up to `end`.

        As in SGLang 0.5.23 (`insert_host` in mem_cache/unified_cache/unified_tree_core.py): pages
        that have copies already are freed. Under write-through a node on the device without a copy
        gets one; under write-back it does not.

        Returns the node that ends there; None: it has no copy.
        """
        node = anchor
        self.tree.use(node)
        while node.end < end:
            child = self.tree.find_child(node, token_ids)
            if child is None:
                break
            self.tree.use(child)
            num_tokens = self.tree.num_common_tokens(child, token_ids, node.end, end)
            if num_tokens < child.num_tokens:
                child = self.tree.split(child, num_tokens)
            given, pages = pages.split(num_tokens // self.page_size)
            if child.host.pages is None and not self.writes_back:
                child.host.pages = given
                self.memory.tell_stored(child)
            else:
                self.memory.pool.free(given)
            node = child
        if node.end < end:
            leaf = self.tree.add_copy(node, kept_part(token_ids, node.end, end))
            leaf.host.pages = pages
            self.memory.tell_stored(leaf)
            self.memory.demote(leaf, node)
            return leaf
        return None if node.host.pages is None else node

    # ---- eviction from the device --------------------------------------------------------------

    def save(self, leaf: RadixNode) -> bool:
        if self.writes_back and leaf.host.pages is None:
            self._write_back(leaf)
        return leaf.host.pages is not None

    def _save_for(self, copies: PoolCopies, node: RadixNode) -> None:
        """Under write-back, copy an inner node of which nothing is copied.

        As in SGLang 0.5.23 (`_evict_device_next_node` of mem_cache/unified_radix_cache.py).
        """
        if not self.writes_back or node.host.pages is not None or copies.has_copy(node):
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
            self.memory.tell_stored(node)
            self._back_up(nodes)

    def may_drop(self, leaf: RadixNode) -> bool:
        """Whether no copy in host memory of a node, or of what follows it, is still needed.

        Under write-back a copy is needed while it is written to a store, and while a fetch begins
        behind it. As in SGLang 0.5.23 (`drop_subtree_no_host` in unified_tree_core.py).
        """
        if self.storage is None:
            return True
        stack = [leaf]
        while stack:
            node = stack.pop()
            if node.host.num_locks or any(part.is_locked(node) for part in self.parts):
                return False
            stack.extend(node.host.children.values())
        return True

    def demote(self, leaf: RadixNode, parent: RadixNode) -> None:
        self.memory.demote(leaf, parent)
        for part in self.parts:
            part.note_alone(leaf)

    def drop(self, leaf: RadixNode) -> None:
        # Without this node, the nodes below it in host memory cannot be reached.
        self.memory.drop_below(leaf)


def _end_of(node: RadixNode) -> int:
    return node.end
