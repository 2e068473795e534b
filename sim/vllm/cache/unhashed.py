"""Full blocks whose hashes have not been computed yet.

vLLM hashes every block as soon as it is full. Most hashes are never looked for, so here hashing is
put off: a request's next blocks are hashed, a few at a time, when another request has found the
prefix before them and looks for what follows. Requests find the same blocks either way.

Example: request A fills blocks for the prefixes P1, P2, P3. Later request B has found P1 and looks
for what follows it. Only then are A's next blocks hashed; a block that has been allocated to
another request meanwhile is left out.
"""

from collections.abc import Callable
from typing import Final

from sim.core.errors import InvariantError
from sim.core.tokens import TokenIds, TokenSequence
from sim.vllm.cache.block_hashes import prefix_hashes
from sim.vllm.cache.block_pool import HashedBlock
from sim.vllm.cache.free_block_queue import FreedGroup

# Returns the tokens of a sequence from one position to another.
TokenReader = Callable[[int, int], TokenIds]
# Stands for a token that is not looked at.
ANY_TOKEN: Final = -1

# The first hashes of a sequence are those of this many tokens, but at least of this many blocks.
_FIRST_TOKENS = 1024
_FIRST_BLOCKS = 8


def extend_hashes(
    hashes: list[int], read_tokens: TokenReader, num_blocks: int, block_size: int
) -> None:
    """Compute more hashes of a sequence's prefixes: a few at first, later as many as there are.

    Args:
        hashes: the known hashes, one for each block from the first on; the new ones are appended.
        read_tokens: reads the sequence's tokens.
        num_blocks: full blocks of the sequence; more than `hashes` has.
        block_size: tokens in a block.
    """
    first = len(hashes)
    end = min(max(2 * first, _FIRST_TOKENS // block_size, _FIRST_BLOCKS), num_blocks)
    before = hashes[-1] if hashes else 0
    token_ids = read_tokens(first * block_size, end * block_size)
    hashes += prefix_hashes(token_ids, block_size, first, before)


class UnhashedBlocks:
    """The blocks that one request has filled and that have no hash yet.

    The object outlives the request: its blocks keep their contents until they are allocated again.

    Attributes:
        blocks: all blocks of the request, in order of its tokens; the request's own list.
        hashes: hashes of the request's prefixes, as far as they are computed; also its own list.
        num_hashed: the first `num_hashed` blocks can be found in the pool.
        full_at: for each block that the request filled, in order, the number of the decision at
            which the block became full. Blocks that the request found in the cache are left out.
        number: the request's admission number.
        catch_up: brings `full_at` up to date; None: `full_at` is always up to date.
    """

    __slots__ = (
        "_group",
        "_last_token",
        "_num_found",
        "_read_tokens",
        "blocks",
        "catch_up",
        "full_at",
        "hashes",
        "num_hashed",
        "number",
    )

    def __init__(
        self,
        number: int,
        found: list[int],
        hashes: list[int],
        read_tokens: TokenReader,
        last_token: Callable[[int, int], int],
    ) -> None:
        """Start with the blocks that an admitted request found; all of them have hashes."""
        self.number = number
        self.blocks = found
        self.hashes = hashes
        self.num_hashed = self._num_found = len(found)
        self.full_at: list[int] = []
        self.catch_up: Callable[[], None] | None = None
        self._read_tokens = read_tokens
        self._last_token: Callable[[int, int], int] | None = last_token
        self._group: FreedGroup | None = None

    @property
    def parent(self) -> int:
        """Hash of the prefix that ends where the blocks without hashes start; 0: no prefix."""
        return self.hashes[self.num_hashed - 1] if self.num_hashed else 0

    def last_token(self, block_size: int) -> int:
        """The last token of the first block without a hash; `ANY_TOKEN`: it may be any."""
        if self._last_token is not None:
            return self._last_token(self.num_hashed, block_size)
        if self.num_intact <= self.num_hashed:
            return ANY_TOKEN
        end = (self.num_hashed + 1) * block_size
        return int(self._read_tokens(end - 1, end)[0])

    @property
    def num_full(self) -> int:
        """Full blocks of the request, found ones included."""
        return self._num_found + len(self.full_at)

    @property
    def num_intact(self) -> int:
        """How many of the full blocks, from the first on, still hold the request's tokens.

        Freed blocks are allocated again from the last to the first.
        """
        if self._group is None:
            return self.num_full
        return min(self.num_full, len(self.blocks) - self._group.num_dequeued)

    @property
    def is_released(self) -> bool:
        """The request has freed its blocks."""
        return self._group is not None

    @property
    def is_exhausted(self) -> bool:
        """No block is left to hash, and none will come."""
        return self._group is not None and self.num_intact <= self.num_hashed

    def hash_next(self, block_size: int) -> tuple[int, int]:
        """Hash the next few full blocks; returns where they begin and end in `blocks`."""
        if self.catch_up is not None:
            self.catch_up()
        first, end = self.num_hashed, self.num_intact
        if first >= end:
            return first, first
        if len(self.hashes) <= first:
            extend_hashes(self.hashes, self._read_tokens, end, block_size)
        end = min(end, len(self.hashes))
        self.num_hashed = end
        if self._group is not None:
            self._group.num_plain = len(self.blocks) - end
        return first, end

    def origin(self, block: int) -> HashedBlock:
        """When, and by which request, one of the blocks was filled; not for found blocks."""
        return self.full_at[self.blocks.index(block) - self._num_found], self.number, block

    def release(
        self, group: FreedGroup, part: Callable[[int, int], TokenSequence], block_size: int
    ) -> None:
        """Note that the request has freed its blocks.

        Args:
            group: the group of freed blocks in the queue of free blocks.
            part: returns the request's tokens from one position to another, to be kept after the
                request is gone.
            block_size: tokens in a block.
        """
        self._group = group
        if self._last_token is not None:
            self.keep_tokens(part, block_size)

    def keep_tokens(self, part: Callable[[int, int], TokenSequence], block_size: int) -> None:
        """Note that the request has ended: its tokens are kept here. See `release`."""
        self.catch_up = None
        self._last_token = None
        offset, end = self.num_hashed * block_size, self.num_full * block_size
        self._read_tokens = _reader(part(offset, end), offset) if offset < end else _read_nothing


def _reader(kept: TokenSequence, offset: int) -> TokenReader:
    """Reads a sequence of which only the tokens from `offset` on were kept."""
    return lambda start, stop: kept[start - offset : stop - offset]


def _read_nothing(start: int, stop: int) -> TokenIds:
    raise InvariantError(f"tokens {start} to {stop} were read, but no tokens were kept")
