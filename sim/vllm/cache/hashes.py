"""Hashes of full blocks: a block is found by its own tokens and all tokens before them.

vLLM 0.19 chains cryptographic hashes: each block's hash covers its parent's hash and its own
tokens. Here a hash has 64 bits, and the hashes of many blocks are computed at once: each block's
tokens are mixed with the block's position, and the hash of a prefix is the sum over its blocks.
Two different prefixes have the same hash with probability 2**-64. Among ten million blocks, the
probability that any two collide is 3e-6.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from sim.core.splitmix import GOLDEN_RATIO, finalise
from sim.core.tokens import TokenIds

_UInt64 = NDArray[np.uint64]

_STEP = np.uint64(GOLDEN_RATIO)


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
    blocks = token_ids.astype(np.uint64).reshape(-1, block_size)
    contents = finalise(blocks + np.uint64(1)) @ _weights(block_size)
    places = np.arange(first + 1, first + 1 + len(contents), dtype=np.uint64) * _STEP
    sums = np.cumsum(finalise(contents ^ finalise(places)), dtype=np.uint64)
    hashes: list[int] = (sums + np.uint64(before)).tolist()
    return hashes


@cache
def _weights(block_size: int) -> _UInt64:
    """Odd multipliers, one for each token of a block."""
    return finalise(np.arange(1, block_size + 1, dtype=np.uint64) * _STEP) | np.uint64(1)
