"""The part of the KV memory for host memory: KV evicted from the device may be loaded back.

Follows SGLang 0.5.23's hierarchical cache (docs/explanation/host-memory.md).
"""

from sim.sglang.cache.part import MemoryPart
from sim.sglang.cache.prefix_cache import PrefixMatch
from sim.sglang.cache.radix_node import RadixNode
from sim.sglang.cache.request_kv import RequestKV
from sim.sglang.cache.tiered_cache import TieredRadixCache


class HostPart(MemoryPart):
    """What requests find in host memory, and when its copies begin and end."""

    def __init__(self, cache: TieredRadixCache) -> None:
        super().__init__()
        self._cache = cache

    def found(self, kv: RequestKV, match: PrefixMatch) -> None:
        kv.found_on_host = self._cache.touch_host(match)
        kv.host_len = match.num_host_tokens

    def load(self, end: RadixNode) -> bool:
        return self._cache.load(end)

    def host_used_tokens(self) -> int:
        return self._cache.memory.used_tokens

    def begin_decision(self, now_ns: int, device_free_ns: int) -> None:
        self._cache.begin_decision(now_ns, device_free_ns)

    def waited_ns(self) -> int:
        return self._cache.copies.waited_ns

    def next_change_ns(self, now_ns: int) -> int | None:
        return self._cache.next_change_ns(now_ns)

    def begin_prefill(self) -> None:
        self._cache.copies.start_loads()
