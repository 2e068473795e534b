"""Traces in comma-separated values, with token counts but no texts: Azure's and BurstGPT.

* Azure's LLM inference traces are published in Azure/AzurePublicDataset: those of 2023 (stamps
  without a time zone, seven fractional digits), those of one week of 2024
  (`2024-05-10 00:00:00.009930+00:00`), and the multimodal one of 2025, which also counts images
  (`AzureLLMInferenceDataset2023.md`, `AzureLLMInferenceDataset2024.md`,
  `AzureLMMInferenceDataset2025.md`).
* BurstGPT (HPMLL/BurstGPT) has a university's requests to ChatGPT and GPT-4. Release 1.1 has six
  columns; release 2.0 (`BurstGPT_3.csv`) adds `Session ID` and `Elapsed time`. `Timestamp` is in
  seconds. Failed requests have 0 response tokens.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path

from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload import MAX_TOKENS
from sim.workload.traces.files import TextLine, read_lines
from sim.workload.traces.rows import (
    IntColumn,
    TraceRows,
    in_order,
    left_out,
    require_rows,
    shown,
    why_not_whole,
)

# A number with more digits than this is not a count of tokens.
_MAX_DIGITS = 18


def read_csv_rows(
    path: Path, headers: tuple[str, ...], limit: int | None
) -> Iterator[tuple[TextLine, Mapping[str, str]]]:
    """Yield each row by column. No field of these formats holds a comma."""
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
    text = row[column]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
        raise line.error(column, f"{shown(text)} is not a whole number")
    value = int(text)
    if not 0 <= value <= MAX_TOKENS:
        raise line.error(column, why_not_whole(value, 0, MAX_TOKENS))
    return value


AZURE_HEADERS = (
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens",
)
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_azure(path: Path, *, limit: int | None) -> TraceRows:
    """Read the rows. Arrivals are exact times since the first row.

    Time stamps have up to nine fractional digits, and may have a time zone. The file has no
    prompts, only their lengths. A row with 0 tokens is no request that a server could repeat.
    """
    arrivals, inputs, outputs = IntColumn(), IntColumn(), IntColumn()
    first_ns, previous_ns, num_empty, num_images = None, 0, 0, 0
    for line, row in read_csv_rows(path, AZURE_HEADERS, limit):
        stamp_ns = stamp_to_ns(line, "TIMESTAMP", row["TIMESTAMP"])
        first_ns = stamp_ns if first_ns is None else first_ns
        previous_ns = in_order(line, "TIMESTAMP", stamp_ns - first_ns, previous_ns)
        num_input = token_count(line, row, "ContextTokens")
        num_output = token_count(line, row, "GeneratedTokens")
        if not num_input or not num_output:
            num_empty += 1
            continue
        num_images += "NumImages" in row and token_count(line, row, "NumImages") > 0
        arrivals.append(previous_ns)
        inputs.append(num_input)
        outputs.append(num_output)
    require_rows(len(arrivals), path)
    notes = left_out(num_empty, "no context tokens, or no generated tokens")
    if num_images:
        notes += (f"{num_images:,} requests have images: only their ContextTokens count",)
    return TraceRows(
        arrival_ns=arrivals.to_numpy(),
        prompts=inputs.to_numpy(),
        output_tokens=outputs.to_numpy(),
        notes=notes,
    )


def stamp_to_ns(line: TextLine, key: str, text: str) -> int:
    """Nanoseconds from 1970 to a time stamp. Without a time zone it is taken as UTC."""
    match = _STAMP.fullmatch(text)
    if match is None:
        raise line.error(key, f"{shown(text)} is not YYYY-MM-DD HH:MM:SS.fffffff")
    day, clock, fraction, zone = match.groups()
    try:
        since = datetime.fromisoformat(f"{day} {clock}{zone or 'Z'}") - _EPOCH
    except ValueError as error:
        raise line.error(key, f"{shown(text)}: {error}") from error
    whole_s = since.days * 86_400 + since.seconds
    return whole_s * NS_PER_S + int((fraction or "").ljust(9, "0"))


BURSTGPT_HEADERS = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
)
_SESSION = "Session ID"
# A longer text is no time stamp; converting it might take very long.
_MAX_STAMP_CHARS = 40


def read_burstgpt(path: Path, *, limit: int | None) -> TraceRows:
    """Read the rows. Arrivals count from the first row. Failed requests are left out."""
    arrivals, inputs, outputs = IntColumn(), IntColumn(), IntColumn()
    sessions: list[str] = []
    first_ns, previous_ns, num_failed = None, 0, 0
    for line, row in read_csv_rows(path, BURSTGPT_HEADERS, limit):
        stamp_ns = seconds_to_ns(line, row, "Timestamp")
        first_ns = stamp_ns if first_ns is None else first_ns
        previous_ns = in_order(line, "Timestamp", stamp_ns - first_ns, previous_ns)
        num_input = token_count(line, row, "Request tokens")
        num_output = token_count(line, row, "Response tokens")
        if not num_input or not num_output:
            num_failed += 1
            continue
        arrivals.append(previous_ns)
        inputs.append(num_input)
        outputs.append(num_output)
        sessions.append(row.get(_SESSION, ""))
        if not sessions[-1].isprintable():
            raise line.error(_SESSION, f"{shown(sessions[-1])} cannot be printed")
    require_rows(len(arrivals), path)
    return TraceRows(
        arrival_ns=arrivals.to_numpy(),
        prompts=inputs.to_numpy(),
        output_tokens=outputs.to_numpy(),
        sessions=sessions if any(sessions) else None,
        notes=left_out(num_failed, "failed, with 0 tokens"),
    )


def seconds_to_ns(line: TextLine, row: Mapping[str, str], column: str) -> int:
    text = row[column]
    try:
        seconds = Decimal(text) if len(text) <= _MAX_STAMP_CHARS else Decimal("NaN")
    except InvalidOperation:
        seconds = Decimal("NaN")
    if not seconds.is_finite():
        raise line.error(column, f"{shown(text)} is not a finite number of seconds")
    if not 0 <= seconds <= MAX_TIME_NS // NS_PER_S:
        raise line.error(column, f"{shown(text)} s is not a possible time")
    return round(seconds * NS_PER_S)
