"""The part of the KV memory for host memory: KV evicted from the device may be loaded back.

Follows SGLang 0.5.23's hierarchical cache (docs/explanation/host-memory.md).
"""

from sim.sglang.cache.host.loads import HostLoads
from sim.sglang.cache.host.tree import HostTree
from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.request_kv import RequestKV
from sim.sglang.cache.tree.prefix_cache import PrefixMatch
from sim.sglang.cache.tree.radix_node import RadixNode
from sim.sglang.cache.tree.tree_part import PathLock


class HostPart(MemoryPart):
    """What requests find in host memory, and when its copies begin and end.

    It is the first part: what others find depends on how much it has found.
    """

    def __init__(self, host: HostTree) -> None:
        super().__init__(host=host)
        self._host = host
        self._loads = HostLoads(host)
        self._loading: tuple[PathLock, list[int]] | None = None

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
        self._loading = self._host.tree.lock_with_parts(end), self._loads.lock_copies(end)

    def load(self, end: RadixNode) -> float | None:
        return self._loads.load(end)

    def end_load(self, kv: RequestKV, end: RadixNode, *, is_loaded: bool) -> None:
        if self._loading is not None:
            lock, starts = self._loading
            self._host.tree.unlock_with_parts(lock)
            self._loads.unlock_copies(end, starts)
            self._loading = None

    def host_used_tokens(self) -> int:
        return self._host.memory.used_tokens

    def begin_decision(self, now_ns: int, device_free_ns: int) -> None:
        stored, loaded = self._host.transfers.begin_decision(now_ns, device_free_ns)
        self._host.end_stores(stored)
        self._loads.end(loaded)

    def end_decision(self) -> int:
        return self._host.transfers.end_decision()

    def next_change_ns(self, now_ns: int) -> int | None:
        return self._host.transfers.next_change_ns(now_ns)

    def begin_prefill(self) -> None:
        self._host.transfers.start_loads()
