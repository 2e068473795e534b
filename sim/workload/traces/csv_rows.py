"""Rows of a trace in comma-separated values, and their checks."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from sim.core.errors import InputError
from sim.workload.limits import MAX_TOKENS
from sim.workload.traces.fields import shown, why_not_whole
from sim.workload.traces.lines import TextLine, read_lines

# A larger number of digits is no number of tokens.
_MAX_DIGITS = 18


def read_csv_rows(
    path: Path, headers: tuple[str, ...], limit: int | None
) -> Iterator[tuple[TextLine, Mapping[str, str]]]:
    """Yield each row by column. No field of these formats holds a comma.

    Raises:
        InputError: the file cannot be read, its header is none of `headers`, or a row has more or
            fewer fields.
    """
    lines = read_lines(path)
    header = next(lines, None)
    if header is None:
        return
    if header.text not in headers:
        raise InputError(f"{path}:{header.number}: the header must be {' or '.join(headers)}")
    columns = header.text.split(",")
    for line in islice(lines, limit):
        fields = line.text.split(",")
        if len(fields) != len(columns):
            counts = f"{len(fields)} fields, expected {len(columns)}"
            raise InputError(f"{path}:{line.number}: {counts}")
        yield line, dict(zip(columns, fields, strict=True))


def token_count(line: TextLine, row: Mapping[str, str], column: str) -> int:
    """A number of tokens, which may be 0."""
    text = row[column]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
        raise line.error(column, f"{shown(text)} is not a whole number")
    value = int(text)
    if not 0 <= value <= MAX_TOKENS:
        raise line.error(column, why_not_whole(value, 0, MAX_TOKENS))
    return value
