"""Layers that look back over a limited number of tokens: a sliding window, or a chunk.

vLLM 0.19.0 and 0.33.0: `SlidingWindowManager` and `ChunkedLocalAttentionManager`
(v1/core/single_type_kv_cache_manager.py).
"""

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.full_attention import SingleTypeManager
from sim.vllm.cache.kv_cache_spec import CHUNKED, MAMBA, WINDOW, KVCacheSpec
from sim.vllm.cache.mamba import MambaManager, MambaRules
from sim.vllm.cache.request_blocks import NULL, Chunk, GroupTable, RequestBlocks


class SlidingWindowManager(SingleTypeManager):
    """Layers whose tokens attend to the last `size` tokens only, themselves included."""

    def __init__(self, group: KVCacheSpec, number: int, pool: BlockPool, block_size: int) -> None:
        super().__init__(group, number, pool, block_size)
        # Blocks that hold the window of the token behind a prefix.
        self._num_needed = -(-(group.size - 1) // block_size)

    def find(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: list[SingleTypeManager],
        *,
        drops_last: bool,
    ) -> list[list[int]]:
        """From the right: the first run of enough blocks, or a run from the very beginning."""
        num_needed = self._num_needed + drops_last
        run: list[list[int]] = [[] for _ in alike]
        end = 0
        for i in range(num_tokens // self._block_size - 1, -1, -1):
            if not self._take(kv, i, alike, run):
                run = [[] for _ in alike]
                continue
            if len(run[0]) == 1:
                end = i + 1
            if len(run[0]) >= num_needed:
                break
        found = [[NULL] * (end - len(blocks)) + blocks[::-1] for blocks in run if blocks]
        if not found:
            return run
        if drops_last:
            for blocks in found:
                blocks.pop()
        return found

    def num_skipped(self, num_tokens: int) -> int:
        return max(num_tokens - self.group.size + 1, 0) // self._block_size

    def are_worth_caching(
        self, first: int, end: int, boundaries: list[int], interval: int | None
    ) -> list[bool] | None:
        # With `drops_last` a run of blocks ends a block behind the place where requests go on.
        num_behind = int(self.drops_last)
        num_needed, size = self._num_needed + num_behind, self._block_size
        worth = [False] * (end - first)
        if interval != 0:
            per_interval = 1 if interval is None else interval // size
            if num_needed >= per_interval:
                return None
            for i in range(first, end):
                place = (i - num_behind) % per_interval
                worth[i - first] = i >= num_behind and place >= per_interval - num_needed
        if interval is not None:
            for num_tokens in boundaries:
                last = num_tokens // size + num_behind
                for i in range(max(first, last - num_needed), min(end, last)):
                    worth[i - first] = True
        return worth


class ChunkedLocalAttentionManager(SingleTypeManager):
    """Layers whose tokens attend to those since the last multiple of `size` tokens."""

    def find(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: list[SingleTypeManager],
        *,
        drops_last: bool,
    ) -> list[list[int]]:
        """What lies before the chunk of token `num_tokens` needs no blocks; then as always."""
        size = self._block_size
        before = num_tokens // self.group.size * self.group.size // size
        found = [[NULL] * before for _ in alike]
        for i in range(before, num_tokens // size):
            if not self._take(kv, i, alike, found):
                break
        return found

    def num_skipped(self, num_tokens: int) -> int:
        return num_tokens // self.group.size * self.group.size // self._block_size


class UncachedMambaManager(SingleTypeManager):
    """Layers with a state, without prefix caching: a block for it, and one for each draft token."""

    def __init__(
        self, group: KVCacheSpec, number: int, pool: BlockPool, longest: int, num_drafts: int
    ) -> None:
        super().__init__(group, number, pool, longest)
        self._num_drafts = num_drafts

    def num_new(self, found: list[int], chunk: Chunk, most: int) -> int:
        return 1 + self._num_drafts

    def num_missing(self, table: GroupTable, chunk: Chunk) -> int:
        return 1 + self._num_drafts - len(table.blocks)

    def num_blocks_for_rest(self, table: GroupTable, rest: Chunk, most: int) -> int:
        return self.num_missing(table, rest)


def manager_of(
    group: KVCacheSpec, number: int, pool: BlockPool, block_size: int, states: MambaRules
) -> SingleTypeManager:
    """The manager of a group."""
    if group.kind == MAMBA and states.are_cached:
        return MambaManager(group, number, pool, block_size, states)
    if group.kind == MAMBA:
        return UncachedMambaManager(group, number, pool, states.longest, states.num_drafts)
    if group.kind == WINDOW:
        return SlidingWindowManager(group, number, pool, block_size)
    if group.kind == CHUNKED:
        return ChunkedLocalAttentionManager(group, number, pool, block_size)
    return SingleTypeManager(group, number, pool, block_size)
