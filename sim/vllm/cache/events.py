"""The block pool's events: which full blocks it holds, and which it has allocated anew.

vLLM 0.33.0 emits BlockStored for every full block that gets a hash, and BlockRemoved when such a
block is allocated again (`cache_full_blocks` and `_maybe_evict_cached_block` of
v1/core/block_pool.py). Of equal blocks it reports each. Here, as behind the filter that Dynamo puts
before its index (kv_router/publisher/dedup.rs), the first is reported stored and the last removed.

Deliberate difference: blocks with output tokens are reported when their request ends or is
preempted, not as they become full.
"""

from sim.core.block_keys import BlockKeys
from sim.engine.page_pool import CacheListener
from sim.vllm.cache.request_blocks import RequestBlocks


class BlockEvents:
    """Tells a listener of full blocks, and of the end of their contents."""

    def __init__(self, listener: CacheListener, block_size: int) -> None:
        self._listener = listener
        self._size = block_size
        self._keys = BlockKeys(block_size)
        self._key_of: dict[int, int] = {}
        self._num_equal: dict[int, int] = {}

    def filled(self, kv: RequestBlocks, blocks: list[int], num_blocks: int) -> None:
        """The first `num_blocks` of a request's blocks are full."""
        key_of, num_equal = self._key_of, self._num_equal
        if not num_blocks or blocks[num_blocks - 1] in key_of:
            return
        keys: list[int] = self._keys.of(kv.ids(0, num_blocks * self._size)).tolist()
        new = []
        for block, key in zip(blocks, keys, strict=False):
            if block in key_of:
                continue
            key_of[block] = key
            num_equal[key] = num_equal.get(key, 0) + 1
            if num_equal[key] == 1:
                new.append(key)
        if new:
            self._listener.stored(new)

    def taken(self, blocks: list[int]) -> None:
        """Blocks are allocated: their old contents are lost."""
        gone = []
        for block in blocks:
            key = self._key_of.pop(block, None)
            if key is None:
                continue
            self._num_equal[key] -= 1
            if not self._num_equal[key]:
                del self._num_equal[key]
                gone.append(key)
        if gone:
            self._listener.removed(gone)
