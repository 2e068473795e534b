"""The blocks of one group of layers: what it keeps, what can be found, what is freed or cached.

vLLM 0.19.0 and 0.33.0: `SingleTypeKVCacheManager` (v1/core/single_type_kv_cache_manager.py), with
one block size for all groups; v1/kv_cache_interface.py (there
`get_mamba_prefill_checkpoint_position` and `is_mamba_prefill_checkpoint_valid`, too).
"""

from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.request import NULL, BlockIds, BlockTable, Chunk, RequestBlocks, block_ids

FULL: Final = "full_attention"
WINDOW: Final = "sliding_window"
CHUNKED: Final = "chunked_local_attention"
MAMBA: Final = "mamba"

GroupKind = Literal["full_attention", "sliding_window", "chunked_local_attention", "mamba"]


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    """A group of layers with one block table for each request.

    Attributes:
        kind: `full_attention` layers keep KV of all tokens; `sliding_window` layers that of the
            last tokens; `chunked_local_attention` layers that of the tokens since the last multiple
            of a chunk; `mamba` layers one state, however many tokens there are.
        size: tokens of the window, or of the chunk; 0 for other kinds.
        checkpoint_alignment: of layers with states: a kernel can write a state inside a chunk after
            a multiple of this many tokens of it; 0: it cannot.
        has_drafter: an EAGLE drafter's layers are among them (vLLM's `is_eagle_group`).
    """

    kind: GroupKind
    size: int = 0
    checkpoint_alignment: int = 0
    has_drafter: bool = field(default=False, compare=False)

    def most_blocks(
        self,
        num_in_flight: int,
        longest: int,
        block_size: int,
        *,
        caches: bool,
        num_chunks: int = 1,
        num_drafts: int = 0,
    ) -> int:
        """The most blocks that a request holds at a time.

        vLLM: `max_admission_blocks_per_request` of each spec.

        Args:
            num_in_flight: tokens of all steps that may be in flight.
            longest: tokens of the longest request.
            block_size: tokens in a block.
            caches: prefix caching is on.
            num_chunks: chunks of a prompt that may be in flight in a pipeline. With fewer states
                than they need, vLLM may compute and preempt the same chunks for ever.
            num_drafts: draft tokens of a row; each has a state of its own.
        """
        if self.kind == WINDOW:
            num_tokens = min(self.size - 1 + num_in_flight, longest)
            # One more, because the window may begin inside a block.
            return -(-num_tokens // block_size) + 1
        if self.kind == MAMBA:
            num_states = 1 + (self.checkpoint_alignment > 0)
            return num_drafts + (1 + num_states * num_chunks if caches else 1)
        num_tokens = longest
        if self.kind == CHUNKED:
            num_tokens = min(self.size + num_in_flight, longest)
        return -(-num_tokens // block_size)


class Checkpoint(NamedTuple):
    """A state that a chunk writes before its end.

    Attributes:
        num_tokens: the state is that after this many tokens.
        place: the place of its block in the table. If the last block of a hit is left out, this is
            one place behind the block of tokens that the state ends.
    """

    num_tokens: int
    place: int


def checkpoint_before(num_tokens: int, block_size: int, *, drops_last: bool = False) -> int:
    """The last end of a block that a request with these tokens could go on from.

    The last token is computed in any case. `drops_last`: instead, the last block is.
    """
    if drops_last:
        return max(num_tokens // block_size * block_size - block_size, 0)
    return (num_tokens - 1) // block_size * block_size


def has_checkpoint(chunk: Chunk, place: int, group: KVCacheSpec, block_size: int) -> bool:
    """Whether the state after `place` tokens can be written while a chunk is computed."""
    start, alignment = chunk.start, group.checkpoint_alignment
    if not alignment or start % block_size:
        return False
    if -(-chunk.end // block_size) - 2 <= (start - 1) // block_size:
        return False
    return start + block_size <= place < chunk.end and (place - start) % alignment == 0


_UINT64 = (1 << 64) - 1
_SALT = 0x9E3779B97F4A7C15

T = TypeVar("T", bound=BlockTable)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """How a server keeps KV.

    Attributes:
        enable_caching: requests can go on from blocks of others.
        caches_all: every full block is cached.
        interval: otherwise, `prefix_cache_retention_interval`.
        reuses_uncached_first, retires_all_states: see `sim.vllm.version_rules`.
        hash_lookahead, drops_last_block, looks_behind: see `sim.vllm.scheduler.step_limits`.
        num_drafts: draft tokens of a row. Each has a state of its own behind the last one, until it
            is known which are accepted (`num_speculative_blocks`).
        longest: tokens of the longest request.
        fetches_states: states that are missing can be fetched from another server.
        hashes_at_once: blocks are hashed when they become full, even if no prompt looks for them.
        most_blocks: for each group, the most blocks that count when a request is admitted, 0: all;
            empty: all count.
    """

    enable_caching: bool = True
    caches_all: bool = False
    interval: int | None = 0
    reuses_uncached_first: bool = True
    retires_all_states: bool = True
    hash_lookahead: int = 0
    drops_last_block: bool = False
    looks_behind: bool = False
    num_drafts: int = 0
    longest: int = 0
    fetches_states: bool = False
    hashes_at_once: bool = False
    most_blocks: tuple[int, ...] = ()


class SingleTypeManager(Generic[T]):
    """Base class: the blocks of a group of layers, by what these layers keep.

    Attributes:
        salt: makes the hashes of the group's blocks differ from those of other groups.
        leaves_gaps: places in a table may have no block although they are not skipped.
        drops_last: the last block that is found is left out.
    """

    leaves_gaps = False

    def __init__(
        self, spec: KVCacheSpec, number: int, pool: BlockPool, block_size: int, rules: CacheRules
    ) -> None:
        self.spec = spec
        self.salt = number * _SALT & _UINT64
        self._pool = pool
        self._block_size = block_size
        self._rules = rules
        self._most_blocks = rules.most_blocks[number] if rules.most_blocks else 0
        self.drops_last = rules.drops_last_block

    # ---- finding -------------------------------------------------------------------------------

    def find_longest_cache_hit(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: "list[SingleTypeManager[Any]]",
        *,
        drops_last: bool,
    ) -> list[BlockIds]:
        """The blocks of the longest prefix that this group could go on from, for each group.

        It has at most `num_tokens` tokens. `alike` are this group and all others with the same
        spec; each must have every block. `drops_last`: the last block is left out.
        """
        raise NotImplementedError

    def may_find_more(self, kv: RequestBlocks, found: BlockIds) -> bool:
        """Whether decoding may fill blocks that a request looks for, which has just found some."""
        return True

    def find_from(self, kv: RequestBlocks, first: int, end: int) -> BlockIds:
        """The cached blocks from place `first` on, up to `end` or to the first that is missing."""
        found: list[int] = []
        for i in range(first, end):
            block = self.find_block(kv, i)
            if block == NULL:
                break
            found.append(block)
        return block_ids(found)

    def find_block(self, kv: RequestBlocks, i: int) -> int:
        """The cached block at place `i`; `NULL`: there is none."""
        if i >= len(kv.hashes):
            kv.hash_blocks(i + 1, self._block_size)
        return self._pool.block_of_hash.get(kv.hashes.at(i) ^ self.salt, NULL)

    # ---- allocating ----------------------------------------------------------------------------

    def num_skipped(self, num_tokens: int) -> int:
        """How many blocks at the beginning no token behind the first `num_tokens` attends to."""
        return 0

    @property
    def skip_period(self) -> tuple[int, int] | None:
        """Where `num_skipped` grows: where the tokens divided by the first leave the second."""
        return None

    def is_ready(self, found: BlockIds, decision: int) -> bool:
        """Whether a request may go on from these blocks at this decision."""
        return True

    def num_new_blocks(self, found: BlockIds, chunk: Chunk, *, is_whole: bool) -> int:
        """How many free blocks a request takes for its first chunk.

        `found` are its blocks that are cached; those that are free leave the free blocks, too.
        `chunk` starts behind the hit. `is_whole`: it stands for the whole request, whose blocks
        count as far as it holds them at a time.
        """
        num_blocks = -(-chunk.end // self._block_size)
        if is_whole and 0 < self._most_blocks < num_blocks:
            num_blocks = self._most_blocks
        num_skipped = self.num_skipped(chunk.start)
        num_free = self._pool.num_free(found[num_skipped:] if num_skipped else found)
        return max(num_blocks - max(num_skipped, len(found)), 0) + num_free

    def num_blocks_to_allocate(self, table: T, chunk: Chunk) -> int:
        """How many blocks a running request lacks for a chunk."""
        return max(-(-chunk.end // self._block_size) - table.num_blocks, 0)

    def num_blocks_for_rest(self, table: T, rest: Chunk) -> int:
        """How many more blocks a request will need at a time until the rest is computed."""
        num_blocks = -(-rest.end // self._block_size)
        if 0 < self._most_blocks < num_blocks:
            num_blocks = self._most_blocks
        return max(num_blocks - table.num_blocks, 0)

    def num_lookahead_blocks(self, num_tokens: int) -> int:
        """How many blocks `num_tokens` tokens take behind those that have blocks."""
        return -(-num_tokens // self._block_size)

    def new_table(self, number: int) -> T:
        """The table of a request with this admission number."""
        raise NotImplementedError

    def admit(self, kv: RequestBlocks, found: BlockIds, num_tokens: int, number: int) -> T:
        """Give a new request the blocks of its hit that its next tokens attend to.

        `num_tokens` tokens of it need not be computed.
        """
        table, num_skipped = self.new_table(number), self.num_skipped(num_tokens)
        used = found[num_skipped:]
        self._pool.touch(used[used != NULL])
        table.blocks = [NULL] * num_skipped + used.tolist()
        table.num_cached = len(table.blocks)
        return table

    def allocate_to_load(self, table: T, num_tokens: int) -> None:
        """Allocate what must be fetched of a new request's first tokens.

        All groups do so before any group allocates more (`allocate_external_computed_blocks`).
        """
        num_missing = -(-num_tokens // self._block_size) - table.num_blocks
        if num_missing > 0:
            table.blocks += self._pool.get_new_blocks(num_missing)

    def allocate_new_blocks(self, table: T, chunk: Chunk) -> None:
        """Allocate blocks for a chunk; the pool must have them."""
        num_missing = self.num_blocks_to_allocate(table, chunk)
        if num_missing:
            table.blocks += self._pool.get_new_blocks(num_missing)

    # ---- caching -------------------------------------------------------------------------------

    def cache_blocks(
        self,
        kv: RequestBlocks,
        table: T,
        num_full: int,
        decision: int,
        decisions_per_block: int = 0,
    ) -> None:
        """Let other requests find the first `num_full` blocks of a request, if they are worth it.

        The last of them became full at this decision, each block before `decisions_per_block`
        earlier.
        """
        first, blocks = table.num_cached, table.blocks
        if first >= num_full:
            return
        table.num_cached = num_full
        worth: list[bool] | None = None
        if not self._rules.caches_all:
            ends = self._boundaries(kv)
            worth = self.are_worth_caching(first, num_full, ends, drops_last=self.drops_last)
        places = [
            i
            for i in range(first, num_full)
            if blocks[i] != NULL and (worth is None or worth[i - first])
        ]
        if places:
            kv.hash_blocks(num_full, self._block_size)
            hashes = kv.hashes.values[places] ^ np.uint64(self.salt)
            found = block_ids([blocks[i] for i in places])
            self._pool.add_hashes(hashes, found, decision, table.number)

    def _boundaries(self, kv: RequestBlocks) -> list[int]:
        """After how many tokens other requests are likely to go on, as groups may match there.

        Where the last block is left out, the same prompt goes on a block earlier, and so does one
        that parts from it right behind the junction (`replay_boundaries` and `cache_blocks`).
        """
        size, prompt_len, junction = self._block_size, kv.prompt_len, kv.junction
        if not self._rules.drops_last_block:
            return [prompt_len - 1, junction] if junction else [prompt_len - 1]
        ends = {max(end // size * size - size, 0) for end in (prompt_len - 1, prompt_len)}
        junctions = [junction, junction - size] if self.drops_last else [junction]
        return sorted(ends) + (junctions if junction else [])

    def are_worth_caching(
        self,
        first: int,
        end: int,
        boundaries: list[int],
        per_chunk: int = 1,
        *,
        drops_last: bool = False,
    ) -> list[bool] | None:
        """For each block from `first` to `end`, whether a request could go on from it; None: all.

        `first` and `end` are places in the table. `boundaries`: after how many tokens other
        requests are likely to go on. They go on at the ends of chunks of `per_chunk` blocks, with
        `drops_last` a block before what they find.
        """
        return None

    # ---- giving back ---------------------------------------------------------------------------

    def remove_skipped_blocks(self, table: T, num_processed: int) -> None:
        """Free the blocks that no token behind the first `num_processed` attends to."""
        self._free(self._take_skipped(table, num_processed))

    def _take_skipped(self, table: T, num_processed: int) -> list[int]:
        """Take out these blocks, the last one first."""
        blocks = table.blocks
        skipped: list[int] = []
        for i in range(min(self.num_skipped(num_processed), len(blocks)) - 1, -1, -1):
            if blocks[i] == NULL:
                break
            skipped.append(blocks[i])
            blocks[i] = NULL
        return skipped

    def detach(self, kv: RequestBlocks, table: T) -> None:
        """A request has ended, and its blocks will be freed later."""

    def free(self, kv: RequestBlocks, table: T) -> None:
        """Free a request's blocks; its last block will be allocated first."""
        self._free([block for block in reversed(table.blocks) if block != NULL])

    def free_uncached(self, table: T) -> None:
        """Free those blocks of a request that nobody can find; `free` will free the others."""
        blocks, pool = table.blocks, self._pool
        places = [i for i, block in enumerate(blocks) if block != NULL and not pool.hash_at(block)]
        self._free([blocks[i] for i in reversed(places)])
        for i in places:
            blocks[i] = NULL

    def _free(self, blocks: list[int]) -> None:
        if blocks:
            self._pool.free_blocks(blocks, uncached_first=self._rules.reuses_uncached_first)
