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

import numpy as np

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.single_type_manager import (
    CacheRules,
    Checkpoint,
    KVCacheSpec,
    SingleTypeManager,
    checkpoint_before,
    has_checkpoint,
)
from sim.vllm.request import NO_BLOCKS, NULL, BlockIds, BlockTable, Chunk, RequestBlocks, block_ids

_NONE = -1


class MambaTable(BlockTable):
    """A request's states.

    Attributes:
        first_state: the place of the state that the latest chunk began with.
        num_retired: the states at the first `num_retired` places are given back.
        is_running: a chunk has been allocated.
        checkpoint: what the latest chunk writes before its end.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.first_state = _NONE
        self.checkpoint: Checkpoint | None = None
        self.num_retired = 0
        self.is_running = False


class MambaManager(SingleTypeManager[MambaTable]):
    """A block for each state that is kept, at the place of the block of tokens that it ends.

    Attributes:
        kept: states that this decision lets others find: whose, the block, and its place; None:
            nobody asks.
    """

    leaves_gaps = True

    def __init__(
        self, spec: KVCacheSpec, number: int, pool: BlockPool, block_size: int, rules: CacheRules
    ) -> None:
        super().__init__(spec, number, pool, block_size, rules)
        self._cached_now: set[int] = set()
        self._decision = 0
        self.kept: list[tuple[RequestBlocks, int, int]] | None = None

    def new_table(self, number: int) -> MambaTable:
        return MambaTable(number)

    def find_longest_cache_hit(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: list[SingleTypeManager[Any]],
        *,
        drops_last: bool,
    ) -> list[BlockIds]:
        """The last state that is cached; it stands for all tokens before it."""
        for i in range(num_tokens // self._block_size - 1, -1, -1):
            blocks = [each.find_block(kv, i) for each in alike]
            if NULL not in blocks:
                return [block_ids([NULL] * i + [block]) for block in blocks]
        return [NO_BLOCKS for _ in alike]

    def is_ready(self, found: BlockIds, decision: int) -> bool:
        """A state that is written in this step can be read in the next one only."""
        if not len(found) or self._decision != decision:
            return True
        return self._pool.hash_at(int(found[-1])) not in self._cached_now

    # ---- allocating ----------------------------------------------------------------------------

    def num_skipped(self, num_tokens: int) -> int:
        return max(num_tokens - 1, 0) // self._block_size

    @property
    def skip_period(self) -> tuple[int, int]:
        return self._block_size, 1 % self._block_size

    def _num_places(self, chunk: Chunk) -> int:
        """Places in a table: up to the state after the chunk, and those of drafts behind it.

        Drafters have no states of their own.
        """
        end = chunk.end - chunk.num_ahead
        return -(-end // self._block_size) + self._rules.num_drafts

    def num_new_blocks(self, found: BlockIds, chunk: Chunk, *, is_whole: bool) -> int:
        num_blocks = self._num_places(chunk) - len(found)
        num_checkpoints = int(self._checkpoint(chunk, None) is not None)
        most_new = 1 + self._rules.num_drafts + num_checkpoints
        return min(max(num_blocks, 0), most_new) + self._pool.num_free(found)

    def num_blocks_to_allocate(self, table: MambaTable, chunk: Chunk) -> int:
        return max(self._num_lacking(table, chunk), 0)

    def num_blocks_for_rest(self, table: MambaTable, rest: Chunk) -> int:
        """May be negative: states of drafts that the rest does not need count for other groups.

        vLLM sums the blocks of all groups up, and layers with states have no lower bound there
        (`get_num_blocks_to_allocate` of `MambaManager`).
        """
        return self._num_lacking(table, rest)

    def num_lookahead_blocks(self, num_tokens: int) -> int:
        return 0

    def _num_lacking(self, table: MambaTable, chunk: Chunk) -> int:
        num_blocks = self._num_places(chunk) - len(table.blocks)
        if num_blocks <= 0:
            return num_blocks
        num_drafts = 0 if table.is_running else self._rules.num_drafts
        num_checkpoints = int(self._checkpoint(chunk, table) is not None)
        return min(num_blocks, 1 + num_drafts + num_checkpoints)

    def _checkpoint(self, chunk: Chunk, table: MambaTable | None) -> Checkpoint | None:
        """The state that is written inside the chunk, at a place of its own; None: there is none.

        Example with blocks of 16 tokens, and a chunk from token 0 to 87: the last block begins at
        token 80, so the state's place is 4. It is the state after 80 tokens, which end the block at
        place 4. If requests leave out the last block that they find, they go on a block earlier: it
        is the state after 64 tokens, which another block has been found by.
        """
        if not self.spec.checkpoint_alignment:
            return None
        end, size = chunk.end - chunk.num_ahead, self._block_size
        if self._rules.interval == 0 and end < chunk.prefill_end:
            return None
        place = -(-end // size) - 2
        if place < 0 or (table is not None and self._is_taken(table, place)):
            return None
        position = checkpoint_before(end, size, drops_last=self._rules.drops_last_block)
        whole = Chunk(chunk.start, end, chunk.prefill_end)
        has_one = has_checkpoint(whole, position, self.spec, size)
        return Checkpoint(position, place) if has_one else None

    def _is_taken(self, table: MambaTable, place: int) -> bool:
        """Whether there is a state at a place; one of a draft may be overwritten."""
        blocks = table.blocks
        if place >= len(blocks) or blocks[place] == NULL:
            return False
        return not (table.is_running and place >= len(blocks) - self._rules.num_drafts)

    def allocate_new_blocks(self, table: MambaTable, chunk: Chunk) -> None:
        """Allocate the state at the chunk's end, and that of its checkpoint."""
        blocks, num_drafts = table.blocks, self._rules.num_drafts
        table.checkpoint = self._checkpoint(chunk, table)
        num_checkpoints = int(table.checkpoint is not None)
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

    def cache_blocks(
        self,
        kv: RequestBlocks,
        table: MambaTable,
        num_full: int,
        decision: int,
        decisions_per_block: int = 0,
    ) -> None:
        first, blocks = table.num_cached, table.blocks
        super().cache_blocks(kv, table, num_full, decision, decisions_per_block)
        if first >= num_full:
            return
        if table.checkpoint is not None:
            self._key_checkpoint(kv, table, table.checkpoint, decision)
        if self._decision != decision:
            self._decision = decision
            self._cached_now = set()
        for place in range(first, num_full):
            block = blocks[place]
            block_hash = self._pool.hash_at(block)
            if block_hash:
                self._cached_now.add(block_hash)
                if self.kept is not None:
                    self.kept.append((kv, block, place))

    def detach(self, kv: RequestBlocks, table: MambaTable) -> None:
        self._drop_kept(kv)

    def free(self, kv: RequestBlocks, table: MambaTable) -> None:
        self._drop_kept(kv)
        super().free(kv, table)

    def _drop_kept(self, kv: RequestBlocks) -> None:
        if self.kept:
            self.kept = [each for each in self.kept if each[0] is not kv]

    def _key_checkpoint(
        self, kv: RequestBlocks, table: MambaTable, checkpoint: Checkpoint, decision: int
    ) -> None:
        """Let a state that was written inside a chunk be found by the tokens before it.

        Its block may have been cached for the tokens that end at its place. Nobody is likely to go
        on from a state inside a prompt, so it is not found at all if the interval does not keep it
        (`_cache_partial_tail_block` of vLLM's `MambaManager`).
        """
        block, size, number = table.blocks[checkpoint.place], self._block_size, table.number
        last = checkpoint.num_tokens // size - 1
        worth = self.are_worth_caching(last, last + 1, [])
        drops_last = self._rules.drops_last_block
        likely = checkpoint_before(kv.prompt_len, size, drops_last=drops_last), kv.junction
        is_kept = worth is None or worth[0] or checkpoint.num_tokens in likely
        # Drafts, and what stands for them, have no hashes.
        block_hash = kv.hashes.at(last) ^ self.salt if last < len(kv.hashes) else 0
        if is_kept and self._pool.hash_at(block) == block_hash:
            return
        self._pool.drop_hash(block)
        if is_kept and block_hash:
            hashes = np.array([block_hash], dtype=np.uint64)
            self._pool.add_hashes(hashes, block_ids([block]), decision, number)

    def are_worth_caching(
        self,
        first: int,
        end: int,
        boundaries: list[int],
        per_chunk: int = 1,
        *,
        drops_last: bool = False,
    ) -> list[bool] | None:
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

    def num_new_blocks(self, found: BlockIds, chunk: Chunk, *, is_whole: bool) -> int:
        return 1 + self._rules.num_drafts

    def num_blocks_to_allocate(self, table: BlockTable, chunk: Chunk) -> int:
        return 1 + self._rules.num_drafts - len(table.blocks)

    def num_blocks_for_rest(self, table: BlockTable, rest: Chunk) -> int:
        """A block is as long as the longest request; drafts behind its end count as another one."""
        num_blocks = -(-rest.end // self._rules.longest) + self._rules.num_drafts
        return max(num_blocks - len(table.blocks), 0)

    def num_lookahead_blocks(self, num_tokens: int) -> int:
        return 0

    def allocate_to_load(self, table: BlockTable, num_tokens: int) -> None:
        table.blocks += self._pool.get_new_blocks(1)
