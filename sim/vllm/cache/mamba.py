"""Layers with a state: state-space layers (Mamba) and linear attention, with prefix caching.

A state stands for all tokens before it. A chunk of a prompt reads one state and writes another, at
its end. Chunks end where blocks of tokens end, so that a later request can go on from there
(`mamba_cache_mode: align`); while a request decodes, its last state is overwritten. Some kernels
write a further state inside a chunk, a checkpoint; then the end of a prompt needs no chunk of its
own.

vLLM 0.19.0 and 0.33.0: `MambaManager` (v1/core/single_type_kv_cache_manager.py), where states are
found at the ends of blocks only.
"""

from typing import Any

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.kv_cache_spec import KVCacheSpec, checkpoint_before, has_checkpoint
from sim.vllm.cache.request_blocks import NULL, BlockTable, Chunk, RequestBlocks
from sim.vllm.cache.single_type_manager import CacheRules, SingleTypeManager

_NONE = -1


class MambaTable(BlockTable):
    """A request's states.

    Attributes:
        first_state: the place of the state that the latest chunk began with.
        num_retired: the states at the first `num_retired` places are given back.
        is_running: a chunk has been allocated.
    """

    __slots__ = ("first_state", "is_running", "num_retired")

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.first_state = _NONE
        self.num_retired = 0
        self.is_running = False


class MambaManager(SingleTypeManager[MambaTable]):
    """A block for each state that is kept, at the place of the block of tokens that it ends."""

    leaves_gaps = True

    def __init__(
        self, spec: KVCacheSpec, number: int, pool: BlockPool, block_size: int, rules: CacheRules
    ) -> None:
        super().__init__(spec, number, pool, block_size, rules)
        self._cached_now: set[int] = set()
        self._decision = 0

    def new_table(self, number: int) -> MambaTable:
        return MambaTable(number)

    def find_longest_cache_hit(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: list[SingleTypeManager[Any]],
        *,
        drops_last: bool,
    ) -> list[list[int]]:
        """The last state that is cached; it stands for all tokens before it."""
        for i in range(num_tokens // self._block_size - 1, -1, -1):
            blocks = [each.find_block(kv, i) for each in alike]
            if NULL not in blocks:
                return [[NULL] * i + [block] for block in blocks]
        return [[] for _ in alike]

    def is_ready(self, found: list[int], decision: int) -> bool:
        """A state that is written in this step can be read in the next one only."""
        if not found or self._decision != decision:
            return True
        return self._pool.hash_of.get(found[-1], 0) not in self._cached_now

    def note_cached(self, hashes: list[int], decision: int) -> None:
        if self._decision != decision:
            self._decision = decision
            self._cached_now = set()
        self._cached_now.update(hashes)

    # ---- allocating ----------------------------------------------------------------------------

    def num_skipped(self, num_tokens: int) -> int:
        return max(num_tokens - 1, 0) // self._block_size

    def _num_places(self, chunk: Chunk) -> int:
        """Places in a table: up to the state after the chunk, and those of drafts behind it.

        Drafters have no states of their own.
        """
        end = chunk.end - chunk.num_ahead
        return -(-end // self._block_size) + self._rules.num_drafts

    def num_new_blocks(self, found: list[int], chunk: Chunk, *, is_whole: bool) -> int:
        num_blocks = self._num_places(chunk) - len(found)
        most_new = 1 + self._rules.num_drafts + self._has_checkpoint(chunk, None)
        return min(max(num_blocks, 0), most_new) + self._pool.num_free(found)

    def num_blocks_to_allocate(self, table: MambaTable, chunk: Chunk) -> int:
        num_blocks = self._num_places(chunk) - len(table.blocks)
        if num_blocks <= 0:
            return 0
        num_drafts = 0 if table.is_running else self._rules.num_drafts
        return min(num_blocks, 1 + num_drafts + self._has_checkpoint(chunk, table))

    def num_blocks_for_rest(self, table: MambaTable, rest: Chunk) -> int:
        return self.num_blocks_to_allocate(table, rest)

    def num_lookahead_blocks(self, num_tokens: int) -> int:
        return 0

    def _has_checkpoint(self, chunk: Chunk, table: MambaTable | None) -> bool:
        """Whether a state is written inside the chunk, at a place of its own."""
        if not self.spec.checkpoint_alignment:
            return False
        end, size = chunk.end - chunk.num_ahead, self._block_size
        if self._rules.interval == 0 and end < chunk.prefill_end:
            return False
        place = -(-end // size) - 2
        if place < 0 or (table is not None and self._is_taken(table, place)):
            return False
        position = checkpoint_before(end, size, drops_last=self._rules.drops_last_block)
        whole = Chunk(chunk.start, end, chunk.prefill_end)
        return has_checkpoint(whole, position, self.spec, size)

    def _is_taken(self, table: MambaTable, place: int) -> bool:
        """Whether there is a state at a place; one of a draft may be overwritten."""
        blocks = table.blocks
        if place >= len(blocks) or blocks[place] == NULL:
            return False
        return not (table.is_running and place >= len(blocks) - self._rules.num_drafts)

    def allocate_to_load(self, table: MambaTable, num_tokens: int) -> None:
        """Allocate the state behind these tokens; it is not one that a chunk begins with."""
        num_places = -(-num_tokens // self._block_size)
        table.blocks += self._pool.get_new_blocks(max(num_places - len(table.blocks), 0))

    def allocate_new_blocks(self, table: MambaTable, chunk: Chunk) -> None:
        """Allocate the state at the chunk's end, and that of its checkpoint."""
        blocks, num_drafts = table.blocks, self._rules.num_drafts
        num_checkpoints = int(self._has_checkpoint(chunk, table))
        num_before, num_places = len(blocks), self._num_places(chunk)
        if num_places > num_before or num_checkpoints:
            first_new = num_places - num_drafts - 1 - num_checkpoints
            if table.is_running:
                table.first_state = num_before - 1 - num_drafts
            elif blocks:
                table.first_state = num_before - 1
            if first_new > num_before:
                blocks += [NULL] * (first_new - num_before)
            if table.is_running:
                self._move_drafts(blocks, num_before, first_new)
            blocks += self._pool.get_new_blocks(max(num_places - len(blocks), 0))
        table.is_running = True

    def _move_drafts(self, blocks: list[int], num_before: int, first_new: int) -> None:
        """Move the states of drafts behind the chunk, as far as they are before its new states."""
        for place in range(num_before - self._rules.num_drafts, min(num_before, first_new)):
            blocks.append(blocks[place])
            blocks[place] = NULL

    def remove_skipped_blocks(self, table: MambaTable, num_processed: int) -> None:
        super().remove_skipped_blocks(table, num_processed)
        self._free(self._take_first_state(table, num_processed))

    def _take_skipped(self, table: MambaTable, num_processed: int) -> list[int]:
        """All states before the one that the next token reads."""
        if not self._rules.retires_all_states:
            return super()._take_skipped(table, num_processed)
        blocks, end = table.blocks, min(self.num_skipped(num_processed), len(table.blocks))
        places = [i for i in range(end - 1, table.num_retired - 1, -1) if blocks[i] != NULL]
        skipped = [blocks[i] for i in places]
        for i in places:
            blocks[i] = NULL
        table.num_retired = max(table.num_retired, end)
        return skipped

    def _take_first_state(self, table: MambaTable, num_processed: int) -> list[int]:
        """Take out the state that an earlier chunk began with."""
        place = table.first_state
        if place == _NONE or place >= -(-num_processed // self._block_size) - 1:
            return []
        block = table.blocks[place]
        table.blocks[place] = NULL
        return [] if block == NULL else [block]

    # ---- caching -------------------------------------------------------------------------------

    def are_worth_caching(self, first: int, end: int, boundaries: list[int]) -> list[bool] | None:
        size, interval = self._block_size, self._rules.interval
        if interval is None or (interval and interval <= size):
            return None
        worth = [False] * (end - first)
        if interval:
            for i in range(first, end):
                worth[i - first] = (i + 1) % (interval // size) == 0
        for num_tokens in boundaries:
            place = num_tokens // size - 1
            if first <= place < end:
                worth[place - first] = True
        return worth


class UncachedMambaManager(SingleTypeManager[BlockTable]):
    """Without prefix caching: a block for the state, and one for that of each draft token."""

    def new_table(self, number: int) -> BlockTable:
        return BlockTable(number)

    def num_new_blocks(self, found: list[int], chunk: Chunk, *, is_whole: bool) -> int:
        return 1 + self._rules.num_drafts

    def num_blocks_to_allocate(self, table: BlockTable, chunk: Chunk) -> int:
        return 1 + self._rules.num_drafts - len(table.blocks)

    def num_blocks_for_rest(self, table: BlockTable, rest: Chunk) -> int:
        return self.num_blocks_to_allocate(table, rest)

    def num_lookahead_blocks(self, num_tokens: int) -> int:
        return 0
