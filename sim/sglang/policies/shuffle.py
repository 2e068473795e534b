"""Python's `random.shuffle` with an explicitly seeded generator instead of the global one."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Shuffle:
    """Shuffles as `random.shuffle` does after `random.seed(seed)`, in CPython 3.11 to 3.14.

    SGLang's policy `random` shuffles with Python's global generator. This class is the same
    Mersenne twister, seeded the same way, without global state.
    """

    def __init__(self, seed: int) -> None:
        words = [seed & 0xFFFFFFFF]
        while seed := seed >> 32:
            words.append(seed & 0xFFFFFFFF)
        self._twister = np.random.RandomState(words)
        self._words = self._draw_words()

    def __call__(self, items: Sequence[T]) -> list[T]:
        shuffled = list(items)
        for i in range(len(shuffled) - 1, 0, -1):
            j = self._below(i + 1)
            shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
        return shuffled

    def _draw_words(self) -> Iterator[int]:
        while True:
            yield from self._twister.randint(0, 1 << 32, size=1024, dtype=np.uint32).tolist()

    def _below(self, bound: int) -> int:
        shift = 32 - bound.bit_length()
        while (drawn := next(self._words) >> shift) >= bound:
            pass
        return drawn
