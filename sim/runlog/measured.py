"""Measured times of real requests, for servers without a log of their steps.

The file has one JSON line for each request: `rid`, `arrival_s`, `first_token_s`, `finish_s`,
`prompt_tokens`, `output_tokens`, and `scheduled_s` if it is known. Times count from the start of
the run. A request that failed has no `finish_s`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError, describe, shorten
from sim.core.units import NS_PER_S, seconds_to_ns
from sim.runlog.columns import NOT_YET_NS
from sim.runlog.json_lines import Line, numbered_lines, open_text, to_json_line

_TIMES = ("arrival_s", "scheduled_s", "first_token_s", "finish_s")
_COUNTS = ("prompt_tokens", "output_tokens")
# 1e18 ns: a difference of two such times still fits 64 bits.
MAX_MEASURED_S = 10**9

_MAX_COUNT = 1 << 40


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One row for each request, in order of arrival. Arrays have shape [num_requests].

    Times are ns since the start of the run; `NOT_YET_NS` means never, or not known.
    """

    rid: list[str]
    arrival_ns: Int64
    scheduled_ns: Int64
    first_token_ns: Int64
    finish_ns: Int64
    prompt_tokens: Int64
    output_tokens: Int64

    def __len__(self) -> int:
        return len(self.rid)


def read_measured(path: Path) -> MeasuredRun:
    """Read a measured run, plain or gzipped."""
    rows = [_row(line, f"{path}:{number}") for number, line in numbered_lines(path)]
    if not rows:
        raise InputError(f"{path}: has no request")
    rows.sort(key=lambda row: row[1])
    rid, *numbers = zip(*rows, strict=True)
    twice = next((name for name, count in Counter(rid).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{path}: rid: {describe(twice)} occurs twice")
    return MeasuredRun(list(rid), *(np.array(column, dtype=np.int64) for column in numbers))


def write_measured(run: MeasuredRun, path: Path) -> None:
    """Write a measured run; compressed if the name ends in `.gz`."""
    with open_text(path) as file:
        file.writelines(to_json_line(line) for line in _lines(run))


def _lines(run: MeasuredRun) -> Iterator[dict[str, object]]:
    times = (run.arrival_ns, run.scheduled_ns, run.first_token_ns, run.finish_ns)
    for i, rid in enumerate(run.rid):
        line: dict[str, object] = {"rid": rid}
        for key, column in zip(_TIMES, times, strict=True):
            if column[i] != NOT_YET_NS:
                line[key] = int(column[i]) / NS_PER_S
        line["prompt_tokens"] = int(run.prompt_tokens[i])
        line["output_tokens"] = int(run.output_tokens[i])
        yield line


def _row(line: Line, where: str) -> tuple[str, int, int, int, int, int, int]:
    """The values of one request, in the order of MeasuredRun's fields."""
    unknown = line.keys() - {"rid", *_TIMES, *_COUNTS}
    if unknown:
        raise InputError(f"{where}: {shorten(min(unknown))}: unknown key")
    rid = line.get("rid")
    if not isinstance(rid, str) or not rid or not rid.isprintable():
        raise InputError(f"{where}: rid: must be printable text, got {describe(rid)}")
    arrival, scheduled, first, finish = (_time_ns(line, key, where) for key in _TIMES)
    if arrival == NOT_YET_NS:
        raise InputError(f"{where}: arrival_s: is required")
    known = [t for t in (arrival, scheduled, first, finish) if t != NOT_YET_NS]
    if known != sorted(known):
        raise InputError(f"{where}: times out of order: must be ordered as {', '.join(_TIMES)}")
    prompt_tokens, output_tokens = (_count(line, key, where) for key in _COUNTS)
    return rid, arrival, scheduled, first, finish, prompt_tokens, output_tokens


def _time_ns(line: Line, key: str, where: str) -> int:
    value = line.get(key)
    if value is None:
        return NOT_YET_NS
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value < MAX_MEASURED_S
    ):
        return seconds_to_ns(value)
    raise InputError(
        f"{where}: {key}: must be seconds from 0 to {MAX_MEASURED_S:.0e}, got {describe(value)}"
    )


def _count(line: Line, key: str, where: str) -> int:
    value = line.get(key)
    if type(value) is int and 0 <= value <= _MAX_COUNT:
        return value
    raise InputError(
        f"{where}: {key}: must be a whole number from 0 to 2**40, got {describe(value)}"
    )
