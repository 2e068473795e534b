"""BurstGPT: CSV of a university's requests to ChatGPT and GPT-4, with token counts but no texts.

Published in HPMLL/BurstGPT. Release 1.1 has six columns; release 2.0 (`BurstGPT_3.csv`) adds
`Session ID` and `Elapsed time`. `Timestamp` is in seconds. Failed requests have 0 response tokens.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path

from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload.traces.csv_rows import read_csv_rows, token_count
from sim.workload.traces.fields import in_order, shown
from sim.workload.traces.lines import TextLine
from sim.workload.traces.rows import IntColumn, TraceRows, left_out, require_rows

HEADERS = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
)
_SESSION = "Session ID"
_MAX_LENGTH = 40


def read_burstgpt(path: Path, *, limit: int | None) -> TraceRows:
    """Read the rows. Arrivals count from the first row. Failed requests are left out.

    Raises:
        InputError: the file or a line is bad.
    """
    arrivals, inputs, outputs = IntColumn(), IntColumn(), IntColumn()
    sessions: list[str] = []
    first_ns, previous_ns, num_failed = None, 0, 0
    for line, row in read_csv_rows(path, HEADERS, limit):
        stamp_ns = _seconds_to_ns(line, row)
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


def _seconds_to_ns(line: TextLine, row: Mapping[str, str]) -> int:
    text = row["Timestamp"]
    try:
        seconds = Decimal(text) if len(text) <= _MAX_LENGTH else Decimal("NaN")
    except InvalidOperation:
        seconds = Decimal("NaN")
    if not seconds.is_finite():
        raise line.error("Timestamp", f"{shown(text)} is not a number")
    if not 0 <= seconds <= MAX_TIME_NS // NS_PER_S:
        raise line.error("Timestamp", f"{shown(text)} is not from 0 to {MAX_TIME_NS // NS_PER_S}")
    return round(seconds * NS_PER_S)
