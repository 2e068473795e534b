"""Rows of numbers of a run log while it is built, in little memory."""

from collections.abc import Iterator
from struct import Struct

import numpy as np

from sim.core.arrays import Int64, Narrow, NarrowColumn, narrowed

# Rows that are packed together; unpacked, they take a few megabytes at most.
_ROWS_A_PACK = 1 << 14


class RowBuffer:
    """Rows of `num_columns` int64 numbers, in little memory.

    Every 16,384 rows are packed: each column is stored in the smallest integer type that holds
    its numbers.
    """

    def __init__(self, num_columns: int) -> None:
        self._num_columns = num_columns
        row = Struct(f"={num_columns}q")
        self._row_bytes = row.pack
        self._rows = bytearray()
        self._bytes_a_pack = _ROWS_A_PACK * row.size
        self._packs: list[list[Narrow]] = [[] for _ in range(num_columns)]

    def append(self, row: tuple[int, ...]) -> None:
        """Add a row of `num_columns` numbers."""
        self._rows += self._row_bytes(*row)
        if len(self._rows) >= self._bytes_a_pack:
            self._pack()

    def take_columns(self) -> Iterator[NarrowColumn]:
        """Yield the columns in order, each of shape [rows], and drop them from the buffer."""
        self._pack()
        for packs in self._packs:
            column = NarrowColumn(packs)
            packs.clear()
            yield column

    def _pack(self) -> None:
        table = np.frombuffer(bytes(self._rows), dtype=np.int64).reshape(-1, self._num_columns)
        self._rows.clear()
        if len(table):
            for packs, column in zip(self._packs, table.T, strict=True):
                packs.append(narrowed(column))


class FurtherBuffer:
    """When fast-forwarded steps began and ended, for `FurtherTimes`."""

    def __init__(self) -> None:
        # Of each run since the last pack: its steps, and when the step before them ended. Then of
        # all their steps when they began and ended, int64.
        self._lengths: list[int] = []
        self._before_ns: list[int] = []
        self._starts = bytearray()
        self._ends = bytearray()
        self._waited: list[Narrow] = []
        self._device: list[Narrow] = []

    def append(self, before_ns: int, starts_ns: Int64, ends_ns: Int64) -> None:
        """Add the steps of a run; `before_ns`: when the step before them ended."""
        if len(starts_ns):
            self._lengths.append(len(starts_ns))
            self._before_ns.append(before_ns)
            self._starts += starts_ns.tobytes()
            self._ends += ends_ns.tobytes()
            if len(self._starts) >= 8 * _ROWS_A_PACK:
                self._pack()

    def take(self) -> tuple[NarrowColumn, NarrowColumn]:
        """The columns of `FurtherTimes`; drops them from the buffer."""
        self._pack()
        columns = NarrowColumn(self._waited), NarrowColumn(self._device)
        self._waited, self._device = [], []
        return columns

    def _pack(self) -> None:
        starts_ns = np.frombuffer(bytes(self._starts), dtype=np.int64)
        ends_ns = np.frombuffer(bytes(self._ends), dtype=np.int64)
        if len(ends_ns):
            before_ns = np.concatenate((ends_ns[:1], ends_ns[:-1]))
            lengths = np.array(self._lengths)
            before_ns[lengths.cumsum() - lengths] = self._before_ns
            self._waited.append(narrowed(starts_ns - before_ns))
            self._device.append(narrowed(ends_ns - starts_ns))
        self._starts.clear()
        self._ends.clear()
        self._lengths, self._before_ns = [], []
