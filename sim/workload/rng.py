"""What a workload draws from: random generators, and seeds and block ids for its prompts."""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError


@dataclass(frozen=True, slots=True)
class RandomStreams:
    """Named random generators. Equal seed, scope and name give equal draws on any machine.

    Each kind of draw has its own name, so that a new kind of draw does not change the others.
    """

    seed: int
    scope: str = ""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"must be at least 0, not {self.seed}", key=("seed",))

    def stream(self, name: str) -> "np.random.Generator":
        digest = blake2b(f"{self.scope}/{name}".encode(), digest_size=16).digest()
        entropy = (self.seed, int.from_bytes(digest, "little"))
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))

    def scoped(self, scope: str) -> "RandomStreams":
        """Random streams with the same seed, which differ from those of all other scopes."""
        return RandomStreams(self.seed, f"{self.scope}/{scope}")


MAX_STREAMS = 1 << 32  # a stream's seed has 32 bits
_MAX_BLOCKS = 1 << 41  # a block id has 41 bits


class TokenStreams:
    """Hands out seeds of token streams, and block ids, each of them once."""

    def __init__(self) -> None:
        self._next_stream = 0
        self._next_block = 0

    def take(self, num_streams: int) -> int:
        """Reserve `num_streams` seeds; returns the first of them."""
        first = self._next_stream
        self._next_stream += num_streams
        if self._next_stream > MAX_STREAMS:
            raise InputError("needs more than 2**32 different texts", key=("workload",))
        return first

    def rename_streams(self, seeds: Int64) -> Int64:
        """Replace seeds by newly reserved ones. Equal seeds stay equal, and others different."""
        distinct, places = np.unique(seeds, return_inverse=True)
        return places.astype(np.int64) + self.take(len(distinct))

    def rename_blocks(self, block_ids: Int64) -> Int64:
        """Replace block ids by newly reserved ones. Equal ids stay equal, and others different."""
        distinct, places = np.unique(block_ids, return_inverse=True)
        first = self._next_block
        self._next_block += len(distinct)
        if self._next_block > _MAX_BLOCKS:
            raise InputError("needs more than 2**41 different blocks", key=("workload",))
        return places.astype(np.int64) + first


def draw_lognormal(mean: float, cv: float, num_draws: int, rng: "np.random.Generator") -> Float64:
    """Draws of a log-normal distribution with this mean and coefficient of variation."""
    variance = np.log1p(cv**2)
    draws: Float64 = rng.lognormal(np.log(mean) - variance / 2, np.sqrt(variance), num_draws)
    return draws
