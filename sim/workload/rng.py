"""Independent random streams with names: adding one does not change the others."""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from sim.core.errors import InputError


@dataclass(frozen=True, slots=True)
class RandomStreams:
    """Named random generators. Equal seed, scope and name give equal draws on any machine.

    Raises:
        InputError: the seed is negative.
    """

    seed: int
    scope: str = ""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"must be at least 0, not {self.seed}", key=("seed",))

    def stream(self, name: str) -> np.random.Generator:
        """A new generator, which starts from its beginning at each call."""
        digest = blake2b(f"{self.scope}/{name}".encode(), digest_size=16).digest()
        entropy = (self.seed, int.from_bytes(digest, "little"))
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))

    def scoped(self, scope: str) -> "RandomStreams":
        """Streams of the same seed with names of their own."""
        return RandomStreams(self.seed, f"{self.scope}/{scope}")
