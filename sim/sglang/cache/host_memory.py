"""Host memory with copies of the tree's nodes: its pages, and which copy is dropped first.

Follows SGLang 0.5.23's hierarchical cache (docs/explanation/host-memory.md). Deliberate difference:
if eviction cannot make enough room for a copy, nothing is evicted; SGLang evicts what it can and
then gives up.
"""

import heapq

from sim.core.errors import InvariantError
from sim.engine.page_pool import PagePool
from sim.sglang.cache.eviction import UNSTABLE_RANK, LeafQueue
from sim.sglang.cache.radix_node import RadixNode


class _HostLeafQueue(LeafQueue):
    """A LeafQueue of the unlocked leaves that are in host memory alone."""

    def offer(self, node: RadixNode) -> None:
        if _is_host_leaf(node) and not node.host.queued:
            node.host.queued = True
            self._push(node)

    def pop(self) -> RadixNode | None:
        num_stale = len(self._heap)
        while self._heap:
            rank, _, node = heapq.heappop(self._heap)
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
    """Owner of the host pages. Copies to host memory take no simulated time.

    Attributes:
        pool: the pages.
        evictable_tokens: tokens of nodes in host memory alone that no load needs; all of them can
            be evicted.
        redundant_copies: under write-back, copies of nodes that are on the device as well, oldest
            first. They may be dropped to make room.
        num_redundant_tokens: tokens of `redundant_copies`.
    """

    def __init__(self, pool: PagePool, device_leaves: LeafQueue) -> None:
        self.pool = pool
        self.evictable_tokens = 0
        self.num_redundant_tokens = 0
        self.redundant_copies: dict[RadixNode, None] = {}
        self._leaves = _HostLeafQueue(device_leaves.rank, fail=device_leaves.fail)

    @property
    def used_tokens(self) -> int:
        return (self.pool.num_pages - self.pool.num_free_pages) * self.pool.page_size

    # ---- copies --------------------------------------------------------------------------------

    def store(self, node: RadixNode) -> bool:
        """Copy a node that is on the device. If there is no room, return False, change nothing."""
        num_tokens = node.num_tokens
        if not self._make_room(num_tokens):
            return False
        num_pages = num_tokens // self.pool.page_size
        self.pool.promise(num_pages)
        node.host.pages = self.pool.redeem(num_pages)
        return True

    def demote(self, node: RadixNode, parent: RadixNode) -> None:
        """Note that a node with a copy was evicted from the device."""
        self._unmark_redundant(node)
        parent.host.children[node.key] = node
        self.evictable_tokens += node.num_tokens
        self._leaves.offer(node)

    def promote(self, node: RadixNode, parent: RadixNode, *, redundant: bool) -> None:
        """Note that a node is on the device again; its copy stays.

        Args:
            node: the node.
            parent: its parent.
            redundant: the copy may be dropped to make room (write-back).
        """
        del parent.host.children[node.key]
        self.evictable_tokens -= node.num_tokens
        if redundant:
            self.redundant_copies[node] = None
            self.num_redundant_tokens += node.num_tokens

    def drop_below(self, node: RadixNode) -> None:
        """Free all nodes below a node whose KV is lost; none of them is on the device or locked."""
        stack = list(node.host.children.values())
        node.host.children = {}
        while stack:
            below = stack.pop()
            stack.extend(below.host.children.values())
            below.host.children = {}
            self._free(below)

    # ---- loads ---------------------------------------------------------------------------------

    def lock(self, node: RadixNode) -> None:
        """While they are loaded, protect a node and its ancestors that are in host memory alone."""
        current = node
        while not current.on_device and current.parent is not None:
            if not current.host.num_locks:
                self.evictable_tokens -= current.num_tokens
            current.host.num_locks += 1
            current = current.parent

    def unlock(self, node: RadixNode) -> None:
        """Undo one `lock`."""
        current = node
        while not current.on_device and current.parent is not None:
            current.host.num_locks -= 1
            if not current.host.num_locks:
                self.evictable_tokens += current.num_tokens
                self._leaves.offer(current)
            current = current.parent

    # ---- room ----------------------------------------------------------------------------------

    def _make_room(self, num_tokens: int) -> bool:
        page_size = self.pool.page_size
        missing = num_tokens - self.pool.num_free_pages * page_size
        if missing > self.evictable_tokens + self.num_redundant_tokens:
            return False
        if missing > 0 and self.redundant_copies:
            missing -= self._drop_redundant_copies(missing)
        while missing > 0:
            missing -= self._evict_leaf()
        return True

    def _drop_redundant_copies(self, num_tokens: int) -> int:
        """Drop redundant copies until enough is free, or none is left; returns the tokens freed.

        Copies of unlocked leaves go last: those leaves are the next to be evicted from the device.
        """
        num_freed = 0
        for keeps_next_victims in (True, False):
            chosen = []
            for node in self.redundant_copies:
                if num_freed >= num_tokens:
                    break
                if node.num_locks or node.children or not keeps_next_victims:
                    num_freed += node.num_tokens
                    chosen.append(node)
            for node in chosen:
                self._unmark_redundant(node)
                self._free_pages(node)
        return num_freed

    def _evict_leaf(self) -> int:
        leaf = self._leaves.pop()
        if leaf is None or leaf.parent is None:
            raise InvariantError("host memory counts more evictable tokens than it can evict")
        num_tokens = leaf.num_tokens
        del leaf.parent.host.children[leaf.key]
        self._free(leaf)
        self._leaves.offer(leaf.parent)
        return num_tokens

    def _free(self, node: RadixNode) -> None:
        """Free a node that is in host memory alone: no copy of its KV is left."""
        self._free_pages(node)
        self.evictable_tokens -= node.num_tokens
        node.forget_tokens()

    def _free_pages(self, node: RadixNode) -> None:
        if node.host.pages is None:
            raise InvariantError("a node without a copy in host memory was freed there")
        self.pool.free(node.host.pages)
        node.host.pages = None

    def _unmark_redundant(self, node: RadixNode) -> None:
        if node in self.redundant_copies:
            del self.redundant_copies[node]
            self.num_redundant_tokens -= node.num_tokens
