"""What full blocks are found by: a hash of a block's tokens and of all tokens before them.

vLLM 0.19 chains cryptographic hashes, each over its parent's and the block's tokens. Here they have
64 bits and are made for many blocks at once: each block's tokens are mixed together with its place,
and the hash of a prefix is the sum over its blocks. Two prefixes that differ meet with a chance of
2**-64; with ten million blocks, any two do with one of 3e-6.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from sim.core.splitmix import GOLDEN_RATIO, finalise
from sim.core.tokens import TokenIds

_UInt64 = NDArray[np.uint64]

_STEP = np.uint64(GOLDEN_RATIO)


def prefix_hashes(token_ids: TokenIds, block_size: int, first: int, before: int) -> list[int]:
    """Hashes of the prefixes that end with each of these blocks.

    Args:
        token_ids: tokens of whole blocks; int64, shape [num_blocks * block_size].
        block_size: tokens a block.
        first: number of the first of these blocks in its sequence.
        before: hash of the prefix before it; 0 without one.

    Returns:
        One number a block, never 0 but by chance.
    """
    blocks = token_ids.astype(np.uint64).reshape(-1, block_size)
    contents = finalise(blocks + np.uint64(1)) @ _weights(block_size)
    places = np.arange(first + 1, first + 1 + len(contents), dtype=np.uint64) * _STEP
    sums = np.cumsum(finalise(contents ^ finalise(places)), dtype=np.uint64)
    hashes: list[int] = (sums + np.uint64(before)).tolist()
    return hashes


@cache
def _weights(block_size: int) -> _UInt64:
    """What the tokens of a block are multiplied by, odd numbers all."""
    return finalise(np.arange(1, block_size + 1, dtype=np.uint64) * _STEP) | np.uint64(1)
