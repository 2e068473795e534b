"""Types of numpy arrays, times in whole nanoseconds, and whole numbers in little memory."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.core.units import MAX_TIME_NS

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LONGEST_NS = float(MAX_TIME_NS)


def whole_ns(times_ns: NDArray[np.floating[Any]]) -> Int64:
    """The times, rounded. Longer ones become `MAX_TIME_NS`: a run with such a step is refused."""
    whole: Int64 = np.rint(np.minimum(times_ns, _LONGEST_NS)).astype(np.int64)
    return whole


_TYPES = (np.int8, np.int16, np.int32, np.int64)
_ROWS_A_PIECE = 1 << 14

Narrow = NDArray[np.signedinteger]


class NarrowColumn:
    """Whole numbers in pieces, each in the smallest integer type that holds its numbers."""

    def __init__(self, pieces: Sequence[Narrow]) -> None:
        self._pieces = tuple(pieces)
        self._num_rows = sum(map(len, self._pieces))

    @classmethod
    def of(cls, column: Int64) -> "NarrowColumn":
        starts = range(0, len(column), _ROWS_A_PIECE)
        return cls([narrowed(column[start : start + _ROWS_A_PIECE]) for start in starts])

    @classmethod
    def joined(cls, columns: Iterable["NarrowColumn"]) -> "NarrowColumn":
        """The numbers of several columns, one after the other."""
        return cls([piece for column in columns for piece in column._pieces])

    def __len__(self) -> int:
        return self._num_rows

    @property
    def num_bytes(self) -> int:
        return sum(piece.nbytes for piece in self._pieces)

    def widened(self) -> Int64:
        """A new array of the numbers; shape [num_rows]."""
        whole = np.zeros(self._num_rows, dtype=np.int64)
        start = 0
        for piece in self._pieces:
            # Zeros need no write: the operating system gives no memory to untouched pages.
            if piece.any():
                whole[start : start + len(piece)] = piece
            start += len(piece)
        return whole

    def compact(self) -> Narrow:
        """A new array of the numbers, in the smallest type that holds all of them."""
        return np.concatenate([np.zeros(0, dtype=np.int8), *self._pieces])


def narrowed(column: Int64) -> Narrow:
    """The numbers, at least one, in the smallest type that holds them."""
    low, high = int(column.min()), int(column.max())
    for dtype in _TYPES:
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return column.astype(dtype)
    raise OverflowError(f"{low} to {high} do not fit 64 bits")
