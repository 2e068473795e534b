"""Layers that look back over a limited number of tokens: a sliding window, or a chunk.

vLLM 0.19.0 and 0.33.0: `SlidingWindowManager` and `ChunkedLocalAttentionManager`
(v1/core/single_type_kv_cache_manager.py).
"""

from typing import Any

import numpy as np

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.single_type_manager import CacheRules, KVCacheSpec, SingleTypeManager
from sim.vllm.request import NO_BLOCKS, NULL, BlockIds, BlockTable, RequestBlocks, block_ids


class SlidingWindowManager(SingleTypeManager[BlockTable]):
    """Layers whose tokens attend to the last `size` tokens only, themselves included."""

    def __init__(
        self, spec: KVCacheSpec, number: int, pool: BlockPool, block_size: int, rules: CacheRules
    ) -> None:
        super().__init__(spec, number, pool, block_size, rules)
        # Blocks that hold the window of the token behind a prefix.
        self._num_needed = -(-(spec.size - 1) // block_size)

    def new_table(self, number: int) -> BlockTable:
        return BlockTable(number)

    def find_longest_cache_hit(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: list[SingleTypeManager[Any]],
        *,
        drops_last: bool,
    ) -> list[BlockIds]:
        """The last run of cached blocks that holds a window; else the run at the beginning.

        Example: a window needs 2 blocks, and all but block 3 of blocks 0 to 4 are cached. Block 4
        alone is not enough, so the hit ends behind blocks 1 and 2; its table is NULL, 1, 2.
        """
        num_needed = self._num_needed + drops_last
        run: list[list[int]] = [[] for _ in alike]
        end = 0
        for i in range(num_tokens // self._block_size - 1, -1, -1):
            blocks_here = [each.find_block(kv, i) for each in alike]
            if NULL in blocks_here:
                run = [[] for _ in alike]
                continue
            for blocks, block in zip(run, blocks_here, strict=True):
                blocks.append(block)
            if len(run[0]) == 1:
                end = i + 1
            if len(run[0]) >= num_needed:
                break
        if not run[0]:
            return [NO_BLOCKS for _ in alike]
        found = [[NULL] * (end - len(blocks)) + blocks[::-1] for blocks in run]
        return [block_ids(blocks[:-1] if drops_last else blocks) for blocks in found]

    def num_skipped(self, num_tokens: int) -> int:
        return max(num_tokens - self.spec.size + 1, 0) // self._block_size

    def allocate_to_load(self, table: BlockTable, num_tokens: int) -> None:
        if self.spec.size > 1:  # else the next token attends to none of them
            super().allocate_to_load(table, num_tokens)

    @property
    def skip_period(self) -> tuple[int, int]:
        return self._block_size, (self.spec.size - 1) % self._block_size

    def are_worth_caching(
        self,
        first: int,
        end: int,
        boundaries: list[int],
        per_chunk: int = 1,
        *,
        drops_last: bool = False,
    ) -> list[bool] | None:
        # With `drops_last` a run of blocks ends a block behind the place where requests go on.
        num_behind, interval = int(drops_last), self._rules.interval
        num_needed, size = self._num_needed + num_behind, self._block_size
        worth = [False] * (end - first)
        if interval != 0:
            per_interval = per_chunk if interval is None else interval // size
            if num_needed >= per_interval:
                return None
            for i in range(first, end):
                place = (i - num_behind) % per_interval
                worth[i - first] = i >= num_behind and place >= per_interval - num_needed
        if interval is not None:
            for num_tokens in boundaries:
                last = num_tokens // (size * per_chunk) * per_chunk + num_behind
                for i in range(max(first, last - num_needed), min(end, last)):
                    worth[i - first] = True
        return worth


class ChunkedLocalAttentionManager(SingleTypeManager[BlockTable]):
    """Layers whose tokens attend to those since the last multiple of `size` tokens."""

    def find_longest_cache_hit(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: list[SingleTypeManager[Any]],
        *,
        drops_last: bool,
    ) -> list[BlockIds]:
        """No blocks are needed before the chunk of token `num_tokens`, and all from there on."""
        size = self._block_size
        before = num_tokens // self.spec.size * self.spec.size // size
        runs = [each.find_from(kv, before, num_tokens // size) for each in alike]
        shortest = min([len(run) for run in runs])
        skipped = block_ids([NULL] * before)
        return [np.concatenate([skipped, run[:shortest]]) for run in runs]

    def new_table(self, number: int) -> BlockTable:
        return BlockTable(number)

    def num_skipped(self, num_tokens: int) -> int:
        return num_tokens // self.spec.size * self.spec.size // self._block_size

    def allocate_to_load(self, table: BlockTable, num_tokens: int) -> None:
        if num_tokens % self.spec.size:  # else the next token attends to none of them
            super().allocate_to_load(table, num_tokens)

    @property
    def skip_period(self) -> tuple[int, int]:
        return self.spec.size, 0
