"""Rows of numbers taken in one by one, given back as columns, in little memory meanwhile."""

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

# Rows that are packed at once: a few megabytes at most wait for it.
_ROWS_A_PACK = 1 << 14
_WIDTHS = (np.int8, np.int16, np.int32, np.int64)


class RowBuffer:
    """Rows of `num_columns` whole numbers below 2**63.

    Packed, a column of a few thousand rows takes the bytes that its largest number needs.
    """

    def __init__(self, num_columns: int) -> None:
        self._num_columns = num_columns
        self._num_rows = 0
        self._numbers = array("q")
        self._numbers_a_pack = _ROWS_A_PACK * num_columns
        self._packs: list[list[NDArray[np.signedinteger]]] = [[] for _ in range(num_columns)]

    def append(self, row: tuple[int, ...]) -> None:
        """Take a row of `num_columns` numbers in."""
        self._numbers.extend(row)
        if len(self._numbers) >= self._numbers_a_pack:
            self._pack()

    def take_columns(self) -> Iterator[NDArray[np.int64]]:
        """The columns, one after the other; each is forgotten. Shape [rows]."""
        self._pack()
        for packs in self._packs:
            column = np.zeros(self._num_rows, dtype=np.int64)
            start = 0
            for pack in packs:
                # Pages of zeros that nobody writes to take no memory.
                if pack.any():
                    column[start : start + len(pack)] = pack
                start += len(pack)
            packs.clear()
            yield column

    def _pack(self) -> None:
        table = np.array(self._numbers, dtype=np.int64).reshape(-1, self._num_columns)
        self._num_rows += len(table)
        del self._numbers[:]
        if len(table):
            for packs, column in zip(self._packs, table.T, strict=True):
                packs.append(_narrowed(column))


def _narrowed(column: NDArray[np.int64]) -> NDArray[np.signedinteger]:
    low, high = int(column.min()), int(column.max())
    for width in _WIDTHS:
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            return column.astype(width)
    raise OverflowError(f"{low} to {high} do not fit 64 bits")
