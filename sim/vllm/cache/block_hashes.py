"""Hashes of full blocks: a block is found by its own tokens and all tokens before them.

vLLM 0.19 chains cryptographic hashes: each block's hash covers its parent's hash and its own
tokens. Here a hash has 64 bits, and the hashes of many blocks are computed at once: each block's
tokens are mixed with the block's position, and the hash of a prefix is the sum over its blocks.
Two different prefixes have the same hash with probability 2**-64. Among ten million blocks, the
probability that any two collide is 3e-6.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sim.core.splitmix import GOLDEN_RATIO, finalise
from sim.core.tokens import TokenIds

_UInt64 = NDArray[np.uint64]

# Returns the tokens of a sequence from one position to another.
TokenReader = Callable[[int, int], TokenIds]

# The first hashes of a sequence are those of this many tokens, but at least of this many blocks.
_FIRST_TOKENS = 1024
_FIRST_BLOCKS = 8
_STEP = np.uint64(GOLDEN_RATIO)
_ONE = np.uint64(1)


def prefix_hashes(token_ids: TokenIds, block_size: int, first: int, before: int) -> list[int]:
    """Hashes of the prefixes that end with each of the given blocks.

    Args:
        token_ids: tokens of whole blocks; int64, shape [num_blocks * block_size].
        block_size: tokens in a block.
        first: position of the first given block in its sequence, counted in blocks from 0.
        before: hash of the prefix that ends where the given blocks start; 0: they start at 0.

    Returns:
        One hash for each block. 0, which means "no prefix", comes out with probability 2**-64.
    """
    blocks = token_ids.view(np.uint64).reshape(-1, block_size)
    contents = finalise(blocks + _ONE) @ _weights(block_size)
    num_blocks = len(contents)
    # For all first blocks of a prompt at once: numpy takes longer to begin than to compute a few.
    num_places = 1 << (first + num_blocks).bit_length()
    contents ^= _places(num_places)[first : first + num_blocks]
    sums = np.add.accumulate(finalise(contents))
    sums += np.uint64(before)
    hashes: list[int] = sums.tolist()
    return hashes


@cache
def _places(num_blocks: int) -> _UInt64:
    """A number for the place of each of the first blocks of a sequence."""
    return finalise(np.arange(1, num_blocks + 1, dtype=np.uint64) * _STEP)


@cache
def _weights(block_size: int) -> _UInt64:
    """Odd multipliers, one for each token of a block."""
    return finalise(np.arange(1, block_size + 1, dtype=np.uint64) * _STEP) | np.uint64(1)


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
