"""Host memory with copies of what the tree's nodes hold, and which copy is dropped first.

Follows SGLang 0.5.23's hierarchical cache (docs/explanation/host-memory.md). What parts have in
host memory follows mem_cache/unified_cache: `drive_host_eviction` of its components, and
`host_lru_lists` in unified_tree_core.py. The copy of a part's unit may be evicted while the unit is
in host memory alone, and no load needs it.
"""

import heapq
from collections.abc import Callable

from sim.core.errors import InvariantError
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.pool_tree import PoolOrder, PoolTree, UnitPool
from sim.sglang.cache.tree.prefix_cache import CopiesOfPool
from sim.sglang.cache.tree.radix_cache import TreeEvents
from sim.sglang.cache.tree.radix_node import UNSTABLE_RANK, LeafQueue, PoolDatum, RadixNode


class _HostLeafQueue(LeafQueue):
    """A LeafQueue of the unlocked leaves that are in host memory alone."""

    def offer(self, node: RadixNode) -> None:
        if _is_host_leaf(node) and not node.host.queued:
            node.host.queued = True
            self._push(node)

    def was_split(self, node: RadixNode) -> None:
        """The node's rank may have become lower: it gets a further entry."""
        if node.host.queued:
            self._push(node)

    def pop(self) -> RadixNode | None:
        num_stale = len(self._heap)
        while self._heap:
            rank, _, node = heapq.heappop(self._heap)
            if not node.host.queued:
                continue
            if not _is_host_leaf(node):
                node.host.queued = False
            elif self.rank(node) != rank:
                num_stale -= 1
                if num_stale < 0:
                    raise self.fail(UNSTABLE_RANK)
                self._push(node)
            else:
                node.host.queued = False
                return node
        return None


def _is_host_leaf(node: RadixNode) -> bool:
    host = node.host
    return not (node.on_device or host.pages is None or host.children or host.num_locks)


class HostMemory:
    """Owner of the host pages.

    Attributes:
        pool: the pages.
        parts: copies of what nodes hold in the pools of parts.
        redundant_copies: under write-back, copies of nodes that are on the device as well, oldest
            first. They may be dropped for other copies. Nodes that have left the device since are
            removed late, when the list is next looked through; SGLang does the same, so a node
            that comes back meanwhile keeps its old place.
        events: tells a listener of complete copies, and of their end; None: nobody listens.
    """

    def __init__(self, pool: PagePool, device_leaves: LeafQueue) -> None:
        self.pool = pool
        self.parts: list[PoolCopies] = []
        self.redundant_copies: dict[RadixNode, None] = {}
        self.events: TreeEvents | None = None
        self._leaves = _HostLeafQueue(device_leaves.rank, fail=device_leaves.fail)
        self._falls_by_split = device_leaves.falls_by_split

    @property
    def used_tokens(self) -> int:
        return (self.pool.num_pages - self.pool.num_free_pages) * self.pool.page_size

    # ---- copies --------------------------------------------------------------------------------

    def store(self, node: RadixNode) -> bool:
        """Make a copy of a node that is on the device; False: too little can be freed.

        Then some other copies may have been dropped nevertheless.
        """
        num_tokens = node.num_tokens
        if not self._evict_until_free(num_tokens):
            return False
        num_pages = num_tokens // self.pool.page_size
        self.pool.reserve(num_pages)
        node.host.pages = self.pool.take_reserved(num_pages)
        return True

    def take(self, num_tokens: int, least: int) -> Span | None:
        """Pages for this many tokens, or for as many as there is room for, at least `least`.

        As in SGLang 0.5.23 (`allocate_storage_hit` in mem_cache/hybrid_cache/
        hybrid_cache_controller.py), copies of as many tokens are evicted if they do not fit.
        """
        page_size = self.pool.page_size
        if self.pool.num_free_pages * page_size < num_tokens:
            self._evict(num_tokens)
        num_tokens = min(num_tokens, self.pool.num_free_pages * page_size)
        if num_tokens < max(least, 1):
            return None
        self.pool.reserve(num_tokens // page_size)
        return self.pool.take_reserved(num_tokens // page_size)

    def forget(self, node: RadixNode) -> None:
        """Give the pages of a copy back that was made just now."""
        if node.host.pages is not None:
            self.pool.free(node.host.pages)
            node.host.pages = None

    def tell_stored(self, node: RadixNode) -> None:
        """Tell the listener of the copy of a node, if it has one; the copy is complete."""
        if self.events is not None and node.host.pages is not None:
            self.events.brought_back(node, node.end - node.num_tokens)

    def demote(self, node: RadixNode, parent: RadixNode) -> None:
        """Note that a node with a copy was evicted from the device, or has come from a store."""
        parent.host.children[node.key] = node
        self._leaves.offer(node)

    def promote(self, node: RadixNode, parent: RadixNode) -> None:
        """Note that a node is on the device again; its copy stays."""
        del parent.host.children[node.key]

    def note_redundant(self, node: RadixNode) -> None:
        """Under write-back: a copy of this node may be dropped if the node is on the device."""
        host = node.host
        if not node.on_device or host.pages is None or host.stored_with or host.loaded_with:
            self.redundant_copies.pop(node, None)
        else:
            self.redundant_copies.setdefault(node)

    def was_split(self, node: RadixNode) -> None:
        """The first tokens of this node were moved to a new parent."""
        if self._falls_by_split:
            self._leaves.was_split(node)

    def drop_below(self, node: RadixNode) -> None:
        """Free all nodes below a node whose KV is lost; none of them is on the device or locked."""
        stack, lost = list(node.host.children.values()), []
        node.host.children = {}
        while stack:
            below = stack.pop()
            stack.extend(below.host.children.values())
            below.host.children = {}
            lost.append(below)
            self._tell_lost(below)  # While its ancestors still have tokens, which name its prefix.
        for below in lost:
            self._free(below)
        for part in self.parts:
            part.drop(node)
        self.redundant_copies.pop(node, None)

    # ---- loads ---------------------------------------------------------------------------------

    def lock(self, node: RadixNode) -> int:
        """Protect the copy of a node; `unlock` takes what is returned."""
        node.host.num_locks += 1
        return node.end - node.num_tokens

    def unlock(self, node: RadixNode, start: int) -> None:
        """Undo one `lock` of this node, which returned `start`."""
        current = node
        while current.parent is not None and current.end > start:
            current.host.num_locks -= 1
            self._leaves.offer(current)
            current = current.parent

    # ---- eviction ------------------------------------------------------------------------------

    def _evict_until_free(self, num_tokens: int) -> bool:
        return self._evict(num_tokens - self.pool.num_free_pages * self.pool.page_size)

    def _evict(self, missing: int) -> bool:
        """Evict copies of at least this many tokens; False: there are too few."""
        if missing > 0 and self.redundant_copies:
            missing -= self._drop_redundant_copies(missing)
        while missing > 0:
            leaf = self._leaves.pop()
            if leaf is None:
                return False
            missing -= self._evict_leaf(leaf)
        return True

    def _drop_redundant_copies(self, num_tokens: int) -> int:
        """Drop redundant copies until enough is free, or none is left; returns the tokens freed.

        Copies of unlocked leaves go last: those leaves are the next to be evicted from the device.
        """
        num_freed = 0
        removed: list[RadixNode] = []
        for keeps_next_victims in (True, False):
            for node in self.redundant_copies:
                if num_freed >= num_tokens:
                    break
                if not node.on_device or node.host.pages is None:
                    removed.append(node)
                elif not (
                    node.host.loaded_with or node.host.stored_with or node.host.num_locks
                ) and (node.num_locks or node.children or not keeps_next_victims):
                    num_freed += node.num_tokens
                    removed.append(node)
                    self._tell_lost(node)
                    self._free_pages(node)
        for node in removed:
            self.redundant_copies.pop(node, None)
        return num_freed

    def evict_leaf(self, leaf: RadixNode) -> bool:
        """Evict a node that is in host memory alone; False: it has children or is locked."""
        if not _is_host_leaf(leaf):
            return False
        self._evict_leaf(leaf)
        return True

    def _evict_leaf(self, leaf: RadixNode) -> int:
        parent = leaf.required_parent()
        num_tokens = leaf.num_tokens
        del parent.host.children[leaf.key]
        self._tell_lost(leaf)
        self._free(leaf)
        self._leaves.offer(parent)
        return num_tokens

    def _free(self, node: RadixNode) -> None:
        """Free a node that is in host memory alone: no copy of its KV is left."""
        for part in self.parts:
            part.drop(node)
        self._free_pages(node)
        self.redundant_copies.pop(node, None)
        node.forget_tokens()

    def _tell_lost(self, node: RadixNode) -> None:
        if self.events is not None:
            self.events.removed(node)

    def _free_pages(self, node: RadixNode) -> None:
        if node.host.pages is None:
            raise InvariantError("a node without a copy in host memory was freed there")
        self.pool.free(node.host.pages)
        node.host.pages = None


class PoolCopies(CopiesOfPool):
    """Copies of what nodes hold in the window pool, or of their states.

    Attributes:
        tree: what the tree knows of the pool on the device.
        pool: the pool in host memory.
        copy_tokens: a unit takes as long to copy as this many tokens of all layers.
        num_loads: how often a load copies a unit.
    """

    def __init__(
        self,
        tree: PoolTree,
        pool: UnitPool,
        memory: HostMemory,
        save_for: Callable[["PoolCopies", RadixNode], None],
        *,
        copy_tokens: float,
        num_loads: int,
    ) -> None:
        """`save_for` is told when an inner node is about to lose what it holds on the device."""
        self.tree = tree
        self.pool = pool
        self.copy_tokens = copy_tokens
        self.num_loads = num_loads
        self._memory = memory
        self._save_for = save_for
        self._alone = PoolOrder()
        tree.copies = self
        tree.new_datum_of_copy(tree.tree.root)

    def _datum(self, node: RadixNode) -> PoolDatum:
        return self.tree.datum_of_copy(node)

    def has_copy(self, node: RadixNode) -> bool:
        return self._datum(node).holds

    def is_locked(self, node: RadixNode) -> bool:
        return self._datum(node).num_locks > 0

    def num_units(self, nodes: list[RadixNode]) -> int:
        return sum([self.tree.num_units(node) for node in nodes])

    # ---- copies --------------------------------------------------------------------------------

    def reserve(self, num_units: int) -> bool:
        """Take free units, evicting copies if there are too few; False: there are too few still."""
        if self.pool.free_units < num_units:
            self.evict(num_units)
        if self.pool.free_units < num_units:
            return False
        self.pool.take(num_units)
        return True

    def store(self, nodes: list[RadixNode]) -> None:
        """The nodes have copies now, in units that `reserve` took."""
        for node in nodes:
            self._datum(node).holds = True

    def give(self, node: RadixNode) -> None:
        """A node without a copy has one now, which has come from a store, in units taken before."""
        self._datum(node).holds = True
        if not self.tree.datum(node).holds:
            self.note_alone(node)

    def drop(self, node: RadixNode) -> None:
        datum = self._datum(node)
        if datum.holds:
            datum.holds = False
            self.pool.free(self.tree.num_units(node))
            if datum.newer is not None:
                self._alone.remove(datum)

    def save(self, node: RadixNode) -> None:
        self._save_for(self, node)

    def note_alone(self, node: RadixNode) -> None:
        datum = self._datum(node)
        if datum.holds and datum.newer is None:
            self._alone.add(datum)

    def note_on_device(self, node: RadixNode) -> None:
        datum = self._datum(node)
        if datum.newer is not None:
            self._alone.remove(datum)

    def split(self, upper: RadixNode, lower: RadixNode) -> None:
        """Both parts of a node have copies, or neither; the locks hold for both."""
        self.tree.new_datum_of_copy(upper)
        datum, below = self._datum(upper), self._datum(lower)
        datum.num_locks, datum.holds = below.num_locks, below.holds
        if below.holds and not (below.num_locks or self.tree.datum(lower).holds):
            if below.newer is None:
                self._alone.add(datum)
                self._alone.add(below)
            else:
                self._alone.add_after(below, datum)

    # ---- loads ---------------------------------------------------------------------------------

    def lock(self, end: RadixNode) -> int:
        """Protect the copies that a prefix needs; `unlock` takes what is returned."""
        node, start = end, end.end - self.tree.span
        while node.parent is not None and node.end > start:
            datum = self._datum(node)
            if datum.newer is not None and not datum.num_locks:
                self._alone.remove(datum)
            datum.num_locks += 1
            node = node.parent
        return node.end if self.tree.divides else end.end - 1

    def unlock(self, end: RadixNode, start: int) -> None:
        """Undo one `lock` of this node, which returned `start`: the copies count as used now."""
        node = end
        while node.parent is not None and node.end > start:
            datum = self._datum(node)
            datum.num_locks -= 1
            if not datum.num_locks and datum.holds and not self.tree.datum(node).holds:
                self.note_alone(node)
            node = node.parent

    # ---- eviction ------------------------------------------------------------------------------

    def evict(self, num_units: int) -> None:
        """Evict until this many units are freed, or nothing is left to evict.

        The least recently used copies are first. With a leaf all of its copies go; any other node
        keeps those of the layers with full attention.
        """
        num_free = self.pool.free_units + num_units
        datum = self._alone.oldest_unlocked()
        while datum is not None and self.pool.free_units < num_free:
            node, datum = datum.node, self._alone.next_unlocked(datum)
            if not self._memory.evict_leaf(node):
                self.drop(node)
                for part in self.tree.dependents:
                    part.drop_copy(node)
