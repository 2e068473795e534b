"""The blocks in CPU memory of a server with `SimpleCPUOffloadConnector`.

It is a second block pool, with vLLM's own search: what was used least recently leaves first. So
blocks here are those of `sim.vllm.cache`, over again.

vLLM 0.33.0: `cpu_coordinator` of `SimpleCPUOffloadScheduler` (v1/simple_kv_offload/manager.py).
"""

from collections.abc import Sequence

import numpy as np

from sim.vllm.cache.kv_cache_coordinator import KVCacheCoordinator
from sim.vllm.cache.single_type_manager import CacheRules, KVCacheSpec
from sim.vllm.request import NULL, Hashes, RequestBlocks, block_ids


class HostBlocks:
    """Blocks that are being written or read are in use; the others can be found, and may leave."""

    def __init__(
        self, num_blocks: int, block_size: int, groups: tuple[KVCacheSpec, ...], rules: CacheRules
    ) -> None:
        """`rules`: those of the blocks on the GPU."""
        self._memory = KVCacheCoordinator(num_blocks, block_size, groups, rules)
        self._pool = self._memory.pool
        self._block_size = block_size
        self._lookahead = rules.hash_lookahead
        self._num_written = 0

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that can be taken, those that can be found included."""
        return self._pool.num_free_blocks

    @property
    def num_findable(self) -> int:
        return self._pool.num_hashed_blocks

    def has(self, block_hash: int) -> bool:
        """Whether a block is there; `block_hash`: with the salt of its group of layers."""
        return block_hash in self._pool.block_of_hash

    def find(self, kv: RequestBlocks, num_there: int, num_tokens: int) -> tuple[int, list[int]]:
        """How many tokens are here behind the first ones, and in which blocks.

        `num_there` of the request's `num_tokens` tokens are on the GPU; they fill whole blocks.
        vLLM looks for what is behind them as if it were a prompt of its own. The last token of the
        request is never found.
        """
        first = num_there // self._block_size
        end = (num_tokens - self._lookahead) // self._block_size
        if end <= first or num_tokens - 1 <= num_there:
            return 0, []
        kv.hash_blocks(end, self._block_size)
        rest = kv.behind(first, end)
        hit = self._memory.find_longest_cache_hit(rest, num_tokens - num_there)
        found = [block for blocks in hit.blocks for block in blocks.tolist() if block != NULL]
        return hit.num_tokens, found

    def pin(self, blocks: Sequence[int]) -> None:
        """Findable blocks are used: they do not leave."""
        self._pool.touch(block_ids(list(blocks)))

    def take(self, num_blocks: int) -> list[int]:
        """Blocks to be written; what was in them has left."""
        return self._pool.get_new_blocks(num_blocks)

    def written(self, blocks: Sequence[int], hashes: Hashes) -> None:
        """Blocks have been written, and can be found by these hashes.

        vLLM finds the one of several equal blocks that was written first.
        """
        start = 0
        for run in runs_of_different(hashes.tolist()):
            end = start + len(run)
            numbers = np.arange(start, end, dtype=np.int64) + self._num_written
            self._pool.add_hashes(hashes[start:end], block_ids(list(blocks[start:end])), numbers, 0)
            start = end
        self._num_written += len(blocks)

    def release(self, blocks: Sequence[int]) -> None:
        """Blocks are used once less; the first will be taken first."""
        self._pool.free_blocks(list(blocks), uncached_first=True)


def runs_of_different(numbers: Sequence[int]) -> list[list[int]]:
    """The numbers in runs in which none is there twice."""
    if len(set(numbers)) == len(numbers):
        return [list(numbers)]
    runs: list[list[int]] = [[]]
    for number in numbers:
        if number in runs[-1]:
            runs.append([])
        runs[-1].append(number)
    return runs
