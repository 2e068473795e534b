"""Azure's LLM inference traces: CSV with a wall-clock time stamp and two token counts."""

import re
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.workload.limits import MAX_TOKENS
from sim.workload.traces.fields import in_order, shown, why_not_whole
from sim.workload.traces.lines import TextLine, read_lines
from sim.workload.traces.rows import IntColumn, TraceRows, require_rows

_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
_COLUMNS = tuple(_HEADER.split(","))
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_azure(path: Path, *, limit: int | None) -> TraceRows:
    """Read the rows. Arrivals are exact times since the first row.

    Time stamps have up to nine fractional digits (seven in the published files). The file has no
    prompts, only their lengths.

    Raises:
        InputError: the file or a line is bad.
    """
    arrivals, inputs, outputs = IntColumn(), IntColumn(), IntColumn()
    lines = read_lines(path)
    header = next(lines, None)
    if header is not None and header.text != _HEADER:
        raise InputError(f"{path}:{header.number}: the header must be {_HEADER}")
    first_ns, previous_ns = None, 0
    for line in islice(lines, limit):
        fields = line.text.split(",")
        if len(fields) != len(_COLUMNS):
            raise InputError(
                f"{path}:{line.number}: {len(fields)} fields, expected {len(_COLUMNS)}"
            )
        stamp_ns = _stamp_ns(line, fields[0])
        first_ns = stamp_ns if first_ns is None else first_ns
        previous_ns = in_order(line, _COLUMNS[0], stamp_ns - first_ns, previous_ns)
        arrivals.append(previous_ns)
        inputs.append(_num_tokens(line, fields, 1))
        outputs.append(_num_tokens(line, fields, 2))
    require_rows(len(arrivals), path)
    return TraceRows(
        arrival_ns=arrivals.to_numpy(),
        prompts=inputs.to_numpy(),
        output_tokens=outputs.to_numpy(),
    )


def _stamp_ns(line: TextLine, text: str) -> int:
    match = _STAMP.fullmatch(text)
    if match is None:
        raise line.error(_COLUMNS[0], f"{shown(text)} is not YYYY-MM-DD HH:MM:SS.fffffff")
    try:
        seconds = datetime.fromisoformat(f"{match[1]}+00:00") - _EPOCH
    except ValueError as error:
        raise line.error(_COLUMNS[0], f"{shown(text)}: {error}") from error
    return (seconds.days * 86_400 + seconds.seconds) * NS_PER_S + int(
        (match[2] or "").ljust(9, "0")
    )


def _num_tokens(line: TextLine, fields: list[str], column: int) -> int:
    text = fields[column]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18):
        raise line.error(_COLUMNS[column], f"{shown(text)} is not a whole number")
    value = int(text)
    if not 1 <= value <= MAX_TOKENS:
        raise line.error(_COLUMNS[column], why_not_whole(value, 1, MAX_TOKENS))
    return value
