"""The part of the KV memory for host memory: KV evicted from the device may be loaded back.

Follows SGLang 0.5.23's hierarchical cache (docs/explanation/host-memory.md; `load_back` and
`loading_check` in mem_cache/unified_radix_cache.py). A load brings all that a prefix needs, of the
pages and of every part, or nothing.
"""

from sim.core.errors import InputError
from sim.engine.page_pool import CacheListener, Span
from sim.sglang.cache.host.copies import Transfer
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.pool_tree import UnitPool
from sim.sglang.cache.storage.tier import StorageTier
from sim.sglang.cache.tree.prefix_cache import PathLock
from sim.sglang.cache.tree.radix_cache import TreeEvents
from sim.sglang.cache.tree.radix_node import PrefixMatch, RadixNode
from sim.sglang.request import RequestKV


class HostPart(MemoryPart):
    """What requests find in host memory, and when its copies begin and end.

    It is the first part: what others find depends on how much it has found.
    """

    def __init__(self, host: HostTree, storage: StorageTier | None = None) -> None:
        """`storage`: what is below host memory; None: nothing."""
        super().__init__(host=host)
        self._host = host
        self._storage = storage
        self._pool = host.tree.pool
        self._loading: tuple[PathLock, list[int]] | None = None

    def listen(self, listener: CacheListener) -> None:
        self._host.memory.events = TreeEvents(listener, self._host.page_size)

    def found(self, kv: RequestKV, match: PrefixMatch) -> None:
        kv.found_on_host, kv.host_len = None, 0
        if match.host is None:
            return
        node = kv.found_on_host = match.end
        while node is not kv.found and node.parent is not None:
            # As in SGLang, copies of nodes that are on the device, too, are counted.
            if node.host.pages is not None:
                kv.host_len += node.num_tokens
            node = node.parent

    def begin_load(self, kv: RequestKV, end: RadixNode) -> None:
        self._loading = self._host.tree.lock_with_parts(end), self._host.lock_copies(end)

    def end_load(self, kv: RequestKV, end: RadixNode, *, is_loaded: bool) -> None:
        if self._loading is not None:
            lock, starts = self._loading
            self._host.tree.unlock_with_parts(lock)
            self._host.unlock_copies(end, starts)
            self._loading = None

    # ---- decisions -----------------------------------------------------------------------------

    def host_used_tokens(self) -> int:
        return self._host.memory.used_tokens

    def begin_decision(self, now_ns: int, device_free_ns: int) -> None:
        stored, loaded = self._host.transfers.begin_decision(now_ns, device_free_ns)
        nodes = self._host.end_stores(stored)
        self._loads_ended(loaded)
        if self._storage is not None:
            self._storage.begin_decision(nodes)

    def end_decision(self) -> int:
        if self._storage is not None:
            self._storage.end_decision()
        return self._host.transfers.end_decision()

    def next_change_ns(self, now_ns: int) -> int | None:
        change_ns = self._host.transfers.next_change_ns(now_ns)
        if self._storage is None:
            return change_ns
        stored_ns = self._storage.next_change_ns(now_ns)
        if change_ns is None or stored_ns is None:
            return stored_ns if change_ns is None else change_ns
        return min(change_ns, stored_ns)

    def is_copying(self) -> bool:
        if self._storage is not None and self._storage.is_busy:
            return True
        return self._host.transfers.are_under_way

    def begin_prefill(self) -> None:
        self._host.transfers.start_loads()

    def error_if_full(self) -> Exception | None:
        if self._storage is None or not self._host.writes_back:
            return None
        return InputError(
            "SGLang 0.5.23 ends here for want of memory: host memory is full, and KV stays on the"
            " device while what follows it is written to the store or fetched"
            " (`drop_subtree_no_host` in mem_cache/unified_cache/unified_tree_core.py)",
            key=("scheduler", "host_cache", "storage"),
        )

    # ---- loads ---------------------------------------------------------------------------------

    def load(self, end: RadixNode) -> float | None:
        """As in `MemoryPart`; what is on the device must be locked already.

        None: the part in host memory is too short, or too little could be freed for it on the
        device. In the second case other nodes may have been evicted.
        """
        path = _nodes_to_load(end)
        missing = [part.tree.nodes_to_load(end) for part in self._host.parts]
        num_tokens = sum([node.num_tokens for node in path])
        if num_tokens < max(self._host.settings.load_back_threshold_tokens, 1) and not any(missing):
            return None
        if self._host.writes_back and any(
            node.host.loaded_with not in {None, end} for nodes in missing for node in nodes
        ):
            return None
        pages = self._reserve(num_tokens, missing)
        if pages is None:
            return None
        cost_tokens = num_tokens * self._host.settings.full_share
        for node in reversed(path):
            given, pages = pages.split(node.num_tokens // self._host.page_size)
            self._host.return_pages(node, given)
            node.host.loaded_with = end
        for part, nodes in zip(self._host.parts, missing, strict=True):
            for node in reversed(nodes):
                part.tree.hold(node)
            cost_tokens += part.num_units(nodes) * part.copy_tokens * part.num_loads
        self._host.tree.tell_loaded(end, num_tokens)
        if self._host.transfers.take_time:
            lock, starts = self._host.tree.lock_with_parts(end), self._host.lock_copies(end)
            self._host.transfers.add_load(Transfer(end, lock, starts), cost_tokens)
        else:
            self._note_loaded(end)
        return cost_tokens

    def _reserve(self, num_tokens: int, missing: list[list[RadixNode]]) -> Span | None:
        """Pages, and units of the parts' pools for these nodes; None: too little can be freed."""
        self._host.tree.evict(num_tokens - self._pool.num_free_pages * self._host.page_size)
        if num_tokens > self._pool.num_free_pages * self._host.page_size:
            return None
        num_pages = num_tokens // self._host.page_size
        self._pool.reserve(num_pages)
        pages = self._pool.take_reserved(num_pages)
        taken: list[tuple[UnitPool, int]] = []
        for part, nodes in zip(self._host.parts, missing, strict=True):
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

    def _note_loaded(self, end: RadixNode) -> None:
        """The nodes up to `end` that one load has brought are there: their copies are redundant."""
        node = end
        while node.parent is not None:
            if node.host.loaded_with is end:
                node.host.loaded_with = None
                if self._host.writes_back:
                    self._host.memory.note_redundant(node)
            node = node.parent

    def _loads_ended(self, transfers: list[Transfer]) -> None:
        """These loads have ended."""
        for transfer in transfers:
            self._host.tree.unlock_with_parts(transfer.lock)
            self._host.unlock_copies(transfer.end, transfer.copy_starts)
            self._note_loaded(transfer.end)


def _nodes_to_load(end: RadixNode) -> list[RadixNode]:
    """The nodes of a path that are not on the device; the last one first."""
    path, node = [], end
    while not node.on_device:
        path.append(node)
        node = node.required_parent()
    return path
