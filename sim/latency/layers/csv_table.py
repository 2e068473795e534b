"""Reads tables of comma-separated values, plain or gzipped, and says where one is wrong."""

import csv
from collections.abc import Hashable, Iterable
from math import inf, isfinite, nan
from pathlib import Path
from statistics import median
from typing import TypeVar

from sim.core.errors import InputError
from sim.core.packed import GZIP_ERRORS, open_unpacked

Key = TypeVar("Key", bound=Hashable)


class CsvTable:
    """Columns of a file with a header; lines end in LF or CRLF, empty ones are passed over."""

    def __init__(self, path: Path) -> None:
        """Read a file.

        Raises:
            InputError: unreadable, without a row, or a row that has not as many fields as the
                header.
        """
        self.path = path
        reader = csv.reader(_text(path).splitlines(), strict=True)
        try:
            self._header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: not CSV: {error}") from None
        if not rows:
            raise InputError(f"{path}: has no rows")
        for column in self._header:
            if self._header.count(column) > 1:
                raise InputError(f"{path}:1: {column}: is there twice")
        for number, row in rows:
            if len(row) != len(self._header):
                found = f"has {len(row)} fields, the header {len(self._header)}"
                raise InputError(f"{path}:{number}: {found}")
        self._lines = [number for number, _ in rows]
        columns = zip(*[row for _, row in rows], strict=True)
        self._columns = dict(zip(self._header, columns, strict=True))

    def __contains__(self, column: str) -> bool:
        return column in self._columns

    @property
    def num_rows(self) -> int:
        return len(self._lines)

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def words(self, column: str) -> tuple[str, ...]:
        """A column as it stands. Raises InputError where there is none."""
        if column not in self._columns:
            raise InputError(f"{self.path}:1: {column}: there is no such column")
        return self._columns[column]

    def numbers(self, column: str, *, low: float = 0.0) -> list[float]:
        """A column of finite numbers, `low` or more.

        Raises:
            InputError: there is no such column, or something else in it.
        """
        words = self.words(column)
        try:
            numbers = list(map(float, words))
        except ValueError:
            numbers = [_number(word) for word in words]
        if not all(map(isfinite, numbers)) or min(numbers) < low:
            row = next(i for i, x in enumerate(numbers) if not isfinite(x) or x < low)
            what = "a number" if low == -inf else f"a number, {low:g} or more"
            raise self.error(row, column, f"must be {what}, got {words[row]!r}")
        return numbers

    def error(self, row: int, column: str, reason: str) -> InputError:
        """About a field of the row with this index."""
        return InputError(f"{self.path}:{self._lines[row]}: {column}: {reason}")


def find_table(folder: Path, name: str) -> Path | None:
    """A file of a folder, plain or gzipped."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def need_table(folder: Path, name: str) -> CsvTable:
    """Read a file of a folder. Raises InputError where there is none."""
    path = find_table(folder, name)
    if path is None:
        raise InputError(f"{folder / name}: no such file, plain or .gz")
    return CsvTable(path)


def medians(points: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """One time for each key; of repeated measurements their median."""
    repeats: dict[Key, list[float]] = {}
    for key, time in points:
        repeats.setdefault(key, []).append(time)
    return {key: times[0] if len(times) == 1 else median(times) for key, times in repeats.items()}


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return nan


def _text(path: Path) -> str:
    try:
        with open_unpacked(path) as stream:
            return stream.read().decode("utf-8-sig")
    except GZIP_ERRORS:
        raise InputError(f"{path}: gzip data are cut off or corrupt") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start + 1} is not UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
