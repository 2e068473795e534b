"""Blocks whose contents nobody has asked for yet.

vLLM names every block when it is full. Most are never looked for: here a request's blocks are named
when somebody looks for what comes after the prefix that stands before them, a few at a time. What
is found is the same.
"""

from collections.abc import Callable

from sim.core.errors import InvariantError
from sim.core.token_sequences import TokenSequence
from sim.core.tokens import TokenIds
from sim.vllm.cache.free_queue import FreedRun
from sim.vllm.cache.hashes import prefix_hashes

Ids = Callable[[int, int], TokenIds]

_FIRST_HASHES = 8


def extend_hashes(known: list[int], ids: Ids, most: int, block_size: int) -> None:
    """Make some more hashes of a sequence's prefixes that end with a block.

    Args:
        known: of the first blocks; they grow.
        ids: the sequence's tokens from one to another.
        most: blocks of the sequence there are, more than are known.
        block_size: tokens a block.
    """
    first = len(known)
    end = min(max(2 * first, _FIRST_HASHES), most)
    before = known[-1] if known else 0
    known += prefix_hashes(ids(first * block_size, end * block_size), block_size, first, before)


class UnnamedBlocks:
    """The blocks that one request has filled and that have no names, while they last.

    Attributes:
        blocks: all of the request's, in order of its tokens; the same list as the request's.
        hashes: of the request's prefixes, as far as they were made; the same list too.
        num_named: the first blocks have names.
        full_at: when each block became full, from the first one on that the request did not find.
        number: of the request, in order of admission.
        catch_up: brings `full_at` up to date; None: it is.
    """

    __slots__ = (
        "_first",
        "_ids",
        "_run",
        "blocks",
        "catch_up",
        "full_at",
        "hashes",
        "num_named",
        "number",
    )

    def __init__(self, number: int, found: list[int], hashes: list[int], ids: Ids) -> None:
        """Of a request that found these blocks, which have names, and has these tokens."""
        self.number = number
        self.blocks = found
        self.hashes = hashes
        self.num_named = self._first = len(found)
        self.full_at: list[int] = []
        self.catch_up: Callable[[], None] | None = None
        self._ids = ids
        self._run: FreedRun | None = None

    @property
    def parent(self) -> int:
        """Hash of the prefix before those without names; 0 without one."""
        return self.hashes[self.num_named - 1] if self.num_named else 0

    @property
    def num_full(self) -> int:
        """Blocks of the request that were full, those it found among them."""
        return self._first + len(self.full_at)

    @property
    def num_left(self) -> int:
        """Full blocks that have not been taken for something else."""
        if self._run is None:
            return self.num_full
        return min(self.num_full, len(self.blocks) - self._run.num_passed)

    @property
    def are_free(self) -> bool:
        return self._run is not None

    @property
    def are_over(self) -> bool:
        """None is left, and there will be no more."""
        return self._run is not None and self.num_left <= self.num_named

    def next_names(self, block_size: int) -> range:
        """Which blocks are named next, now that somebody looks for them; their hashes are made."""
        if self.catch_up is not None:
            self.catch_up()
        first, end = self.num_named, self.num_left
        if first >= end:
            return range(first, first)
        if len(self.hashes) <= first:
            extend_hashes(self.hashes, self._ids, end, block_size)
        end = min(end, len(self.hashes))
        self.num_named = end
        return range(first, end)

    def full_since(self, index: int) -> int:
        """When one of its blocks became full."""
        return self.full_at[index - self._first]

    def freed(
        self, run: FreedRun, part: Callable[[int, int], TokenSequence], block_size: int
    ) -> None:
        """The request gave its blocks back.

        Args:
            run: where they stand in the queue, those without names first.
            part: the request's tokens from one to another, to be kept.
            block_size: tokens a block.
        """
        self._run = run
        self.catch_up = None
        offset, end = len(self.hashes) * block_size, self.num_full * block_size
        self._ids = _slices_of(part(offset, end), offset) if offset < end else _no_ids


def _slices_of(kept: TokenSequence, offset: int) -> Ids:
    """The tokens of a sequence of which those from `offset` on were kept."""
    return lambda start, stop: kept[start - offset : stop - offset]


def _no_ids(start: int, stop: int) -> TokenIds:
    raise InvariantError(f"tokens {start} to {stop} are asked for, and none was kept")
