"""Azure's LLM inference traces: CSV with a wall-clock time stamp and two token counts.

Published in Azure/AzurePublicDataset: the traces of 2023 (stamps without a time zone, seven
fractional digits), those of one week of 2024 (`2024-05-10 00:00:00.009930+00:00`), and the
multimodal one of 2025, which also counts images (`AzureLLMInferenceDataset2023.md`,
`AzureLLMInferenceDataset2024.md`, `AzureLMMInferenceDataset2025.md`).
"""

import re
from datetime import UTC, datetime
from pathlib import Path

from sim.core.units import NS_PER_S
from sim.workload.traces.csv_rows import read_csv_rows, token_count
from sim.workload.traces.fields import in_order, shown
from sim.workload.traces.lines import TextLine
from sim.workload.traces.rows import IntColumn, TraceRows, left_out, require_rows

HEADERS = (
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

    Raises:
        InputError: the file or a line is bad.
    """
    arrivals, inputs, outputs = IntColumn(), IntColumn(), IntColumn()
    first_ns, previous_ns, num_empty, num_images = None, 0, 0, 0
    for line, row in read_csv_rows(path, HEADERS, limit):
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
    """Nanoseconds from 1970 to a time stamp. Without a time zone it is taken as UTC.

    Raises:
        InputError: it is no time stamp.
    """
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
