"""Prompts and outputs as token ids that are made only when somebody looks at them.

A *stream* is an endless, reproducible sequence of token ids named by a 32-bit seed. Prompts built
of streams share a prefix exactly as far as their segments agree: all a prefix cache looks at.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int64]

_FIRST_STREAM_TOKEN = 1000
_INDEX_BITS = 32
_UINT64_MAX = (1 << 64) - 1
_GOLDEN_RATIO = 0x9E3779B97F4A7C15
_BLOCK_TOKEN_BASE = 1 << 62
_BLOCK_INDEX_BITS = 20


class Prompt(Protocol):
    """A prompt whose ids are expanded on demand. `token_ids` is int64, shape [len(prompt)]."""

    def __len__(self) -> int: ...

    def token_ids(self) -> TokenIds: ...


def stream_token_ids(seed: int, start: int, stop: int) -> TokenIds:
    """Tokens `start` to `stop` of stream `seed`: `1000 + (splitmix64(seed << 32 | k) >> 34)`.

    Returns:
        int64, shape [stop - start], values 1000 to 1000 + 2**30 - 1.
    """
    x = np.arange(start, stop, dtype=np.uint64)
    # Summed as Python integers: numpy warns when two scalars wrap around, arrays just do.
    x += np.uint64((((seed & 0xFFFFFFFF) << _INDEX_BITS) + _GOLDEN_RATIO) & _UINT64_MAX)
    return _mix(x)


def stream_tokens_at(seeds: NDArray[np.int64], indices: NDArray[np.int64]) -> TokenIds:
    """Token `indices[i]` of stream `seeds[i]`; int64, shape [len(seeds)]."""
    x = seeds.astype(np.uint64) << np.uint64(_INDEX_BITS)
    x += indices.astype(np.uint64)
    x += np.uint64(_GOLDEN_RATIO)
    return _mix(x)


def _mix(x: NDArray[np.uint64]) -> TokenIds:
    """Token ids out of counters, by splitmix64's finaliser; in place."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    x >>= np.uint64(34)
    x += np.uint64(_FIRST_STREAM_TOKEN)
    return x.view(np.int64)


@dataclass(frozen=True, slots=True)
class SegmentPrompt:
    """Segments `(seed, num_tokens)`: each is the first `num_tokens` of stream `seed`."""

    segments: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return sum(num_tokens for _, num_tokens in self.segments)

    def token_ids(self) -> TokenIds:
        return np.concatenate([stream_token_ids(seed, 0, n) for seed, n in self.segments])


@dataclass(frozen=True, slots=True, eq=False)
class BlockPrompt:
    """Blocks of `block_size` tokens named by ids (a trace's `hash_ids`); the last may be partial.

    Two prompts agree on a block exactly when they name the same id. Ids fit 41 bits.
    """

    block_ids: NDArray[np.int64]
    block_size: int
    num_tokens: int

    def __len__(self) -> int:
        return self.num_tokens

    def token_ids(self) -> TokenIds:
        first = _BLOCK_TOKEN_BASE + (self.block_ids << _BLOCK_INDEX_BITS)
        offsets = np.arange(self.block_size, dtype=np.int64)
        return (first[:, None] + offsets).ravel()[: self.num_tokens]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayPrompt:
    """A prompt given by its token ids."""

    ids: TokenIds

    def __len__(self) -> int:
        return len(self.ids)

    def token_ids(self) -> TokenIds:
        return self.ids
