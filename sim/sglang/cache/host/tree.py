"""Host memory below the radix cache: KV evicted from the device may be loaded back.

Follows SGLang 0.5.23's hierarchical cache (mem_cache/unified_radix_cache.py; rules and differences
are in docs/explanation/host-memory.md). Nodes on the device form the top of the tree: below a node
that is in host memory alone, no node is on the device. A node's `children` are on the device; its
`host.children` are in host memory alone.

When copies end: managers/cache_controller.py, `start_writing` and `start_loading`;
mem_cache/unified_radix_cache.py, `writing_check` and `loading_check`. Each direction of the link
makes one copy at a time. No copy starts before the steps that are launched have ended: they may
still write the pages. Decisions look for ended copies when they begin.
"""

from collections import deque
from typing import Final

from sim.core.tokens import TokenSequence, kept_part
from sim.engine.page_pool import PagePool, Span
from sim.sglang.cache.host.memory import HostMemory, PoolCopies
from sim.sglang.cache.pool_tree import PoolTree, UnitPool
from sim.sglang.cache.settings import HostCacheSettings
from sim.sglang.cache.tree.prefix_cache import LowerTier, PathLock
from sim.sglang.cache.tree.radix_cache import RadixCache
from sim.sglang.cache.tree.radix_node import HostNodeState, MatchEnd, PrefixMatch, RadixNode

# SGLang's `LayerDoneCounter.num_counters`: loads that may have begun and are not known to have
# ended.
_MOST_LOADS = 3


class Transfer:
    """A copy of what a prefix has.

    Attributes:
        end: the node at the end of the prefix.
        lock: protects the prefix on the device.
        copy_starts: what `lock_copies` has returned for the copies in host memory.
    """

    def __init__(self, end: RadixNode, lock: PathLock, copy_starts: list[int]) -> None:
        self.end: Final = end
        self.lock: Final = lock
        self.copy_starts: Final = copy_starts


# Transfers that are one copy, and when it ends.
_Copy = tuple[int, list[Transfer]]


class HostCopies:
    """The copies of one server.

    Attributes:
        take_time: copies take time; otherwise each of them ends when it starts.
        unstarted: copies to host memory that the next decision starts.
    """

    def __init__(self, ns_per_token: float) -> None:
        self.take_time = ns_per_token > 0
        self._waited_ns = 0
        # Until when the scheduler has waited. A decision that launches nothing may have waited.
        self._waited_until_ns = 0
        self._decides = False
        # What was copied while results were taken, after the latest decision: the next one waits.
        self._copied_with_results: list[float] = []
        self.unstarted: list[Transfer] = []
        self._num_unstarted = 0.0
        self._ns_per_token = ns_per_token
        self._now_ns = self._device_free_ns = 0
        self._stores: deque[_Copy] = deque()
        self._loads: deque[_Copy] = deque()
        self._stores_free_ns = self._loads_free_ns = 0
        self._to_load: list[Transfer] = []
        self._num_to_load = 0.0

    def next_change_ns(self, now_ns: int) -> int | None:
        """When a decision may find that a copy has ended; now if one is to be started or awaited.

        None: nothing is being copied.
        """
        if self.unstarted or self._copied_with_results:
            return now_ns
        ends = [copies[0][0] for copies in (self._stores, self._loads) if copies]
        return min(ends) if ends else None

    def begin_decision(self, now_ns: int, device_free_ns: int) -> tuple[list[Transfer], ...]:
        """Start the copies to host memory; returns those now stored, and the loads that ended."""
        self._decides = True
        self._now_ns, self._device_free_ns = now_ns, device_free_ns
        self._waited_ns = max(self._waited_until_ns - now_ns, 0)
        for num_tokens in self._copied_with_results:
            self._wait_for_store(num_tokens)
        self._copied_with_results.clear()
        if self.unstarted:
            self._stores_free_ns = self._end_ns(self._num_unstarted, self._stores_free_ns)
            self._stores.append((self._stores_free_ns, self.unstarted))
            self.unstarted, self._num_unstarted = [], 0.0
        now_ns += self._waited_ns
        return _take_ended(self._stores, now_ns), _take_ended(self._loads, now_ns)

    def end_decision(self) -> int:
        """A decision ends; returns how long the scheduler has waited for copies."""
        self._decides = False
        return self._waited_ns

    def _end_ns(self, num_tokens: float, free_ns: int) -> int:
        start_ns = max(self._now_ns + self._waited_ns, self._device_free_ns, free_ns)
        return start_ns + round(num_tokens * self._ns_per_token)

    def add_store(self, transfer: Transfer, num_tokens: float) -> None:
        """Copy to host memory, for as long as this many tokens of all layers take.

        A node that is split meanwhile is copied all the same.
        """
        self.unstarted.append(transfer)
        self._num_unstarted += num_tokens

    def wait_for_store(self, num_tokens: float) -> None:
        """Copy to host memory at once, and wait until it is done (write-back)."""
        if not self.take_time:
            return
        if self._decides:
            self._wait_for_store(num_tokens)
        else:
            self._copied_with_results.append(num_tokens)

    def _wait_for_store(self, num_tokens: float) -> None:
        self._stores_free_ns = self._end_ns(num_tokens, self._stores_free_ns)
        self._waited_ns = self._stores_free_ns - self._now_ns
        self._waited_until_ns = self._stores_free_ns

    def add_load(self, transfer: Transfer, num_tokens: float) -> None:
        """The next batch loads this, for as long as this many tokens of all layers take."""
        self._to_load.append(transfer)
        self._num_to_load += num_tokens

    def start_loads(self) -> int:
        """Start what is to be loaded, as one copy; returns when the latest load ends."""
        if self._to_load:
            self._loads_free_ns = self._end_ns(self._num_to_load, self._loads_free_ns)
            self._loads.append((self._loads_free_ns, self._to_load))
            self._to_load, self._num_to_load = [], 0.0
        return self._loads_free_ns

    @property
    def may_start_loads(self) -> bool:
        """Whether SGLang has an event free with which to note the end of another load."""
        return len(self._loads) < _MOST_LOADS

    def has_passed(self, time_ns: int) -> bool:
        """Whether the scheduler, which may have waited in this decision, is at or past a time."""
        return time_ns <= self._now_ns + self._waited_ns


def _take_ended(copies: deque[_Copy], now_ns: int) -> list[Transfer]:
    ended: list[Transfer] = []
    while copies and copies[0][0] <= now_ns:
        ended += copies.popleft()[1]
    return ended


class HostTree(LowerTier):
    """Copies nodes of a tree to host memory, and keeps them there; `HostPart` loads them back.

    Attributes:
        tree: the tree.
        settings: when nodes are copied, and which are loaded back.
        memory: the host memory.
        parts: the copies of what nodes hold in the pools of parts.
        transfers: copies that run, or are about to start.
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
            child = node.host.children.get(self.tree.child_key(token_ids, node.end))
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
        node.key = self.tree.child_key(node.token_ids, 0)
        upper.host.children[node.key] = node
        return upper

    def bring_back(
        self, parent: RadixNode, token_ids: TokenSequence, pages: Span
    ) -> tuple[RadixNode, Span]:
        while len(token_ids):
            child = parent.host.children.get(self.tree.child_key(token_ids, 0))
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
        return True

    def _copy(self, node: RadixNode) -> tuple[float, list[RadixNode]] | None:
        """Copy what host memory lacks of a node on the device; of its parts, see `nodes_to_copy`.

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

    def end_stores(self, transfers: list[Transfer]) -> None:
        """These copies have ended."""
        for transfer in transfers:
            node = transfer.end
            while node.parent is not None:
                if node.host.stored_with is transfer.end:
                    node.host.stored_with = None
                node = node.parent
            self.tree.unlock_with_parts(transfer.lock)

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

    def demote(self, leaf: RadixNode, parent: RadixNode) -> None:
        self.memory.demote(leaf, parent)
        for part in self.parts:
            part.note_alone(leaf)

    def drop(self, leaf: RadixNode) -> None:
        # Without this node, the nodes below it in host memory cannot be reached.
        self.memory.drop_below(leaf)
