"""The blocks of a request for layers with full attention: all its full blocks can be found.

vLLM hashes every block as soon as it is full. Most hashes are never looked for, so here hashing is
put off: a request's next blocks are hashed, a few at a time, when another request has found the
prefix before them and looks for what follows. Requests find the same blocks either way.

Example: request A fills blocks for the prefixes P1, P2, P3. Later request B has found P1 and looks
for what follows it. Only then are A's next blocks hashed; a block that has been allocated to
another request meanwhile is left out.
"""

from sim.core.errors import InvariantError
from sim.core.tokens import TokenIds, TokenSequence
from sim.vllm.cache.block_hashes import extend_hashes
from sim.vllm.cache.block_pool import HashedBlock
from sim.vllm.cache.free_block_queue import FreedGroup
from sim.vllm.cache.request_blocks import ANY_TOKEN, BlockTable, RequestBlocks


class FullAttentionTable(BlockTable):
    """The object outlives the request: blocks keep their contents until they are allocated again.

    Of the attributes of all tables, `num_cached` counts the full blocks, found ones included.

    Attributes:
        hashes: hashes of the request's prefixes, as far as they are computed; its own list.
        num_hashed: the first `num_hashed` blocks can be found in the pool.
        full_at: for each block that the request filled, in order, the number of the decision at
            which the block became full. Blocks that the request found in the cache are left out.
    """

    __slots__ = ("_freed", "_kept", "_kept_from", "_kv", "full_at", "hashes", "num_hashed")

    def __init__(self, kv: RequestBlocks, found: list[int], number: int) -> None:
        """Start with the blocks that an admitted request found; all of them have hashes."""
        super().__init__(number)
        self.blocks = found
        self.hashes = kv.hashes
        self.num_cached = self.num_hashed = len(found)
        self.full_at: list[int] = []
        self._kv: RequestBlocks | None = kv
        # Of an ended request: its tokens from `_kept_from` on, as far as they may be hashed.
        self._kept: TokenSequence | None = None
        self._kept_from = 0
        self._freed: FreedGroup | None = None

    @property
    def parent(self) -> int:
        """Hash of the prefix that ends where the blocks without hashes start; 0: no prefix."""
        return self.hashes[self.num_hashed - 1] if self.num_hashed else 0

    def last_token(self, block_size: int) -> int:
        """The last token of the first block without a hash; `ANY_TOKEN`: it may be any."""
        if self._kv is not None:
            return self._kv.last_token(self.num_hashed, block_size)
        if self.num_intact <= self.num_hashed:
            return ANY_TOKEN
        end = (self.num_hashed + 1) * block_size
        return int(self._read(end - 1, end)[0])

    @property
    def num_intact(self) -> int:
        """How many of the full blocks, from the first on, still hold the request's tokens.

        Freed blocks are allocated again from the last to the first.
        """
        if self._freed is None:
            return self.num_cached
        return min(self.num_cached, len(self.blocks) - self._freed.num_dequeued)

    @property
    def is_freed(self) -> bool:
        """The request has freed its blocks."""
        return self._freed is not None

    @property
    def is_exhausted(self) -> bool:
        """No block is left to hash, and none will come."""
        return self._freed is not None and self.num_intact <= self.num_hashed

    def hash_next(self, block_size: int) -> tuple[int, int]:
        """Hash the next few full blocks; returns where they begin and end in `blocks`."""
        if self._kv is not None and self._kv.catch_up is not None:
            self._kv.catch_up()
        first, end = self.num_hashed, self.num_intact
        if first >= end:
            return first, first
        if len(self.hashes) <= first:
            extend_hashes(self.hashes, self._read, end, block_size)
        end = min(end, len(self.hashes))
        self.num_hashed = end
        if self._freed is not None:
            self._freed.num_plain = len(self.blocks) - end
        return first, end

    def origin(self, block: int) -> HashedBlock:
        """When, and by which request, one of the blocks was filled; not for found blocks."""
        num_found = self.num_cached - len(self.full_at)
        return self.full_at[self.blocks.index(block) - num_found], self.number, block

    def freed(self, group: FreedGroup, block_size: int) -> None:
        """The request has freed its blocks; the queue of free blocks has them as `group`."""
        self._freed = group
        self.keep_tokens(block_size)

    def keep_tokens(self, block_size: int) -> None:
        """The request ends, or is preempted: its tokens are kept here."""
        if self._kv is not None:
            start, end = self.num_hashed * block_size, self.num_cached * block_size
            if start < end:
                self._kept, self._kept_from = self._kv.part(start, end), start
            self._kv = None

    def _read(self, start: int, stop: int) -> TokenIds:
        if self._kv is not None:
            return self._kv.ids(start, stop)
        if self._kept is None:
            raise InvariantError(f"tokens {start} to {stop} were read, but no tokens were kept")
        return self._kept[start - self._kept_from : stop - self._kept_from]
