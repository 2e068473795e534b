"""splitmix64: makes pseudo-random numbers from counters (Steele, Lea and Flood, 2014)."""

import numpy as np
from numpy.typing import NDArray

# The step of the counter: 2**64 divided by the golden ratio, made odd.
GOLDEN_RATIO = 0x9E3779B97F4A7C15
_FACTOR_1, _FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BITS_27, _BITS_30, _BITS_31 = (np.uint64(bits) for bits in (27, 30, 31))


_MASK = (1 << 64) - 1


def mixed(x: int) -> int:
    """`finalise` for one number."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def finalise(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix every number of an array, in place; different numbers stay different.

    Each bit of a result depends on all bits of its number.
    """
    x ^= x >> _BITS_30
    x *= _FACTOR_1
    x ^= x >> _BITS_27
    x *= _FACTOR_2
    x ^= x >> _BITS_31
    return x
