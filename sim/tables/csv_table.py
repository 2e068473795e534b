"""Reads tables of comma-separated values; errors name the line and the column."""

import csv
from collections.abc import Hashable, Iterable
from math import inf, isfinite, nan
from pathlib import Path
from statistics import median
from typing import TypeVar

from sim.core.errors import InputError, shorten
from sim.core.packed import read_text

Key = TypeVar("Key", bound=Hashable)


class CsvTable:
    """The columns of a file with a header. Lines end in LF or CRLF; empty lines are skipped."""

    def __init__(self, path: Path, *, may_be_empty: bool = False) -> None:
        self.path = path
        reader = csv.reader(read_text(path).splitlines(), strict=True)
        try:
            self._header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: not CSV: {error}") from None
        if not rows and not (may_be_empty and self._header):
            raise InputError(f"{path}: has no rows")
        seen: set[str] = set()
        for column in self._header:
            if column in seen:
                raise InputError(f"{path}:1: {shorten(column)}: names two columns")
            seen.add(column)
        for number, row in rows:
            if len(row) != len(self._header):
                found = f"has {len(row)} fields, the header {len(self._header)}"
                raise InputError(f"{path}:{number}: {found}")
        self._lines = [number for number, _ in rows]
        columns = zip(*[row for _, row in rows], strict=True) if rows else [()] * len(self._header)
        self._columns = dict(zip(self._header, columns, strict=True))

    def __contains__(self, column: str) -> bool:
        return column in self._columns

    @property
    def num_rows(self) -> int:
        return len(self._lines)

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def texts(self, column: str) -> tuple[str, ...]:
        """A column as text. Raises InputError if there is no such column."""
        if column not in self._columns:
            raise InputError(f"{self.path}:1: {column}: there is no such column")
        return self._columns[column]

    def numbers(self, column: str, *, low: float = 0.0) -> list[float]:
        """A column of finite numbers that are at least `low`."""
        texts = self.texts(column)
        try:
            numbers = list(map(float, texts))
        except ValueError:
            numbers = [_number(text) for text in texts]
        if not all(map(isfinite, numbers)) or min(numbers, default=low) < low:
            row = next(i for i, x in enumerate(numbers) if not isfinite(x) or x < low)
            what = "a number" if low == -inf else f"a number, {low:g} or more"
            raise self.error(row, column, f"must be {what}, got {shorten(repr(texts[row]))}")
        return numbers

    def error(self, row: int, column: str, reason: str) -> InputError:
        """An error about a field of the row with this index."""
        return InputError(f"{self.path}:{self._lines[row]}: {column}: {reason}")


def find_table(folder: Path, name: str) -> Path | None:
    """The path of a file, or of the same file gzipped; None if there is neither."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def need_table(folder: Path, name: str) -> CsvTable:
    """Read a file, plain or gzipped. Raises InputError if there is neither."""
    path = find_table(folder, name)
    if path is None:
        raise InputError(f"{folder / name}: no such file, plain or .gz")
    return CsvTable(path)


def medians(points: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """One time for each key: the median of repeated measurements."""
    repeats: dict[Key, list[float]] = {}
    for key, time in points:
        repeats.setdefault(key, []).append(time)
    return {key: times[0] if len(times) == 1 else median(times) for key, times in repeats.items()}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan
