"""The blocks of a group of layers: what can be found, what is freed, what is worth caching.

vLLM 0.19.0 and 0.33.0: v1/core/single_type_kv_cache_manager.py, with one block size for all groups.
"""

from sim.vllm.cache.block_pool import BlockPool
from sim.vllm.cache.kv_cache_spec import MAMBA, KVCacheSpec
from sim.vllm.cache.request_blocks import NULL, Chunk, GroupTable, RequestBlocks
from sim.vllm.cache.unhashed import extend_hashes

_UINT64 = (1 << 64) - 1
_SALT = 0x9E3779B97F4A7C15


def hash_blocks(kv: RequestBlocks, num_blocks: int, block_size: int) -> None:
    """Hash the first blocks of a request; their tokens are known."""
    while len(kv.hashes) < num_blocks:
        extend_hashes(kv.hashes, kv.ids, num_blocks, block_size)


class SingleTypeManager:
    """The blocks of a group of layers with full attention. Base class of the other kinds.

    Attributes:
        salt: makes the hashes of the group's blocks differ from those of other groups.
        leaves_gaps: places in a table may have no block although they are not skipped.
        drops_last: requests leave out the last block that they find.
    """

    def __init__(self, group: KVCacheSpec, number: int, pool: BlockPool, block_size: int) -> None:
        self.group = group
        self.leaves_gaps = self.drops_last = False
        self.salt = number * _SALT & _UINT64
        self._pool = pool
        self._block_size = block_size

    def cached(self, block_hash: int) -> int:
        """The block with this prefix; `NULL`: there is none."""
        return self._pool.block_of_hash.get(block_hash ^ self.salt, NULL)

    # ---- finding -------------------------------------------------------------------------------

    def find(
        self,
        kv: RequestBlocks,
        num_tokens: int,
        alike: "list[SingleTypeManager]",
        *,
        drops_last: bool,
    ) -> list[list[int]]:
        """The blocks of the longest prefix that this group could go on from, for each group.

        Args:
            kv: the request that looks for its prefix.
            num_tokens: the longest prefix to find.
            alike: this group and all others with the same rules; each must have every block.
            drops_last: the last block is left out.
        """
        found: list[list[int]] = [[] for _ in alike]
        for i in range(num_tokens // self._block_size):
            if not self._take(kv, i, alike, found):
                break
        if drops_last and found[0]:
            for blocks in found:
                blocks.pop()
        return found

    def _take(
        self,
        kv: RequestBlocks,
        i: int,
        alike: "list[SingleTypeManager]",
        found: list[list[int]],
    ) -> bool:
        """Append block `i` of each group; False: some group lacks it."""
        if i >= len(kv.hashes):
            hash_blocks(kv, i + 1, self._block_size)
        block_hash = kv.hashes[i]
        blocks = [manager.cached(block_hash) for manager in alike]
        if NULL in blocks:
            return False
        for each, block in zip(found, blocks, strict=True):
            each.append(block)
        return True

    # ---- allocating ----------------------------------------------------------------------------

    def new_table(self) -> GroupTable:
        """The table of a request that is admitted."""
        return GroupTable()

    def num_skipped(self, num_tokens: int) -> int:
        """How many blocks at the beginning no token behind the first `num_tokens` attends to."""
        return 0

    def is_ready(self, found: list[int], decision: int) -> bool:
        """Whether a request may go on from these blocks at this decision."""
        return True

    def num_new(self, found: list[int], chunk: Chunk, most: int) -> int:
        """How many free blocks a request takes for its first chunk.

        Args:
            found: its blocks that are cached; those that are free leave the free blocks, too.
            chunk: it starts behind the hit.
            most: the most blocks that count; 0: all.
        """
        num_blocks = -(-chunk.end // self._block_size)
        if 0 < most < num_blocks:
            num_blocks = most
        num_skipped = self.num_skipped(chunk.start)
        num_free = self._pool.num_free(found[num_skipped:])
        return max(num_blocks - max(num_skipped, len(found)), 0) + num_free

    def num_missing(self, table: GroupTable, chunk: Chunk) -> int:
        """How many blocks a running request lacks for a chunk."""
        return max(-(-chunk.end // self._block_size) - len(table.blocks), 0)

    def num_blocks_for_rest(self, table: GroupTable, rest: Chunk, most: int) -> int:
        """How many more blocks a request will need until the rest is computed.

        `most`: see `num_new`.
        """
        num_blocks = -(-rest.end // self._block_size)
        if 0 < most < num_blocks:
            num_blocks = most
        return max(num_blocks - len(table.blocks), 0)

    def num_ahead(self, num_tokens: int) -> int:
        """How many blocks `num_tokens` tokens take behind those that have blocks."""
        if self.group.kind == MAMBA:
            return 0
        return -(-num_tokens // self._block_size)

    def adopt(self, table: GroupTable, found: list[int], num_found_tokens: int) -> None:
        """Give a new request the blocks of its hit that its next tokens attend to."""
        num_skipped = self.num_skipped(num_found_tokens)
        used = found[num_skipped:]
        self._pool.use([block for block in used if block != NULL])
        table.blocks = [NULL] * num_skipped + used
        table.num_cached = len(table.blocks)

    def make_room_for_load(self, table: GroupTable, num_tokens: int) -> None:
        """Allocate what must be fetched of a new request's first tokens, if `grow` does not."""

    def grow(self, table: GroupTable, chunk: Chunk) -> None:
        """Allocate blocks for a chunk."""
        num_missing = self.num_missing(table, chunk)
        if num_missing:
            table.blocks += self._pool.take(num_missing)

    def remove_skipped_blocks(self, table: GroupTable, num_processed: int) -> list[int]:
        """Take out the blocks that are not needed any more, the last one first."""
        blocks = table.blocks
        dropped: list[int] = []
        for i in range(min(self.num_skipped(num_processed), len(blocks)) - 1, -1, -1):
            if blocks[i] == NULL:
                break
            dropped.append(blocks[i])
            blocks[i] = NULL
        return dropped

    def drop_state(self, table: GroupTable, num_processed: int) -> list[int]:
        """Take out the state that an earlier chunk began with."""
        return []

    # ---- caching -------------------------------------------------------------------------------

    def are_worth_caching(
        self, first: int, end: int, boundaries: list[int], interval: int | None
    ) -> list[bool] | None:
        """For each block from `first` to `end`, whether a request could go on from it; None: all.

        Args:
            first: a block's place in the table.
            end: the place behind the last one.
            boundaries: see `GroupTables`.
            interval: `prefix_cache_retention_interval`.
        """
        return None

    def note_cached(self, hashes: list[int], decision: int) -> None:
        """Blocks with these hashes were cached at this decision."""
