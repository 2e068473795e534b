"""Tells a listener which blocks are in CPU memory.

vLLM 0.33.0 with `self_describing_kv_events`: `OffloadingEventsTracker` (distributed/kv_transfer/
kv_connector/v1/offloading/events.py), fed by `prepare_store` and `complete_store` of
v1/kv_offload/cpu/manager.py. A chunk is told as its blocks; chunks that differ in their last blocks
alone have the others in common.
"""

from collections.abc import Iterable, Sequence

from sim.core.block_keys import BlockKeys
from sim.engine.page_pool import CacheListener, CountedKeys
from sim.vllm.offload.policies import ChunkKey
from sim.vllm.request import RequestBlocks


class ChunkEvents:
    """Of a server with one group of layers."""

    def __init__(
        self, listener: CacheListener, block_size: int, blocks_per_chunk: int, *, remembers: bool
    ) -> None:
        """`remembers`: chunks that have left may come back from a tier below."""
        self._remembers = remembers
        self._there: set[ChunkKey] = set()
        self._told = CountedKeys(listener)
        self._keys = BlockKeys(block_size)
        self._block_size = block_size
        self._per_chunk = blocks_per_chunk
        self._blocks_of: dict[ChunkKey, list[int]] = {}
        # Of requests that have ended: their tokens cannot be read any more.
        self._keys_of_ended: dict[RequestBlocks, list[int]] = {}

    def _keys_of(self, kv: RequestBlocks, num_chunks: int) -> list[int]:
        num_tokens = num_chunks * self._per_chunk * self._block_size
        keys: list[int] = self._keys.of(kv.ids(0, num_tokens)).tolist()
        return keys

    def ended(self, kv: RequestBlocks, num_chunks: int) -> None:
        """A request ends; at most its first `num_chunks` chunks are still to be stored."""
        self._keys_of_ended[kv] = self._keys_of(kv, num_chunks)

    def forget(self, kv: RequestBlocks) -> None:
        """All copies of a request that has ended have ended, too."""
        self._keys_of_ended.pop(kv, None)

    def stored(self, kv: RequestBlocks, chunks: Sequence[ChunkKey]) -> None:
        """Chunks of a request have been written; `came` tells the listener."""
        keys = self._keys_of_ended.get(kv)
        if keys is None:
            keys = self._keys_of(kv, max([chunk.place for chunk in chunks]) + 1)
        for chunk in chunks:
            first = chunk.place * self._per_chunk
            self._blocks_of[chunk] = keys[first : first + self._per_chunk]

    def came(self, chunks: Sequence[ChunkKey]) -> None:
        """Chunks can be found now; those of other servers, from a tier below, are not told of."""
        for chunk in chunks:
            if chunk in self._blocks_of:
                self._there.add(chunk)
                self._told.add(self._blocks_of[chunk])

    def removed(self, chunks: Iterable[ChunkKey]) -> None:
        """Chunks that could be found have left."""
        for chunk in chunks:
            if chunk in self._there:
                self._there.remove(chunk)
                self._told.remove(self._blocks_of[chunk])
                if not self._remembers:
                    del self._blocks_of[chunk]
