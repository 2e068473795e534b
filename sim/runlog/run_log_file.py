"""Writes and reads run logs on disk: what a real server did, and how long it took.

A run log is a decision log with measured times in each step, a first line that describes the
device and the model, and a last line that shows that the file is complete. A profile's log has
measured points in place of steps and requests. docs/reference/run-log.md explains the keys. The
decisions of decision logs are read here, too.

Servers without a log of their steps have measured times of real requests: a file with one JSON line
for each, `rid`, `arrival_s`, `first_token_s`, `finish_s`, `prompt_tokens`, `output_tokens`, and
`scheduled_s` if it is known. Times count from the start of the run. A request that failed has no
`finish_s`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from sim.core.arrays import Int64
from sim.core.batch import ForwardMode
from sim.core.errors import InputError, describe, shorten
from sim.core.packed import Line, numbered_lines, open_text, to_json_line
from sim.core.units import NS_PER_S, seconds_to_ns
from sim.engine.logged_decision import Divergence
from sim.engine.records import RequestRecord
from sim.runlog.columns import NOT_YET_NS, RequestColumns, RunLog, StepColumns, TokenGaps
from sim.runlog.decisions import request_line, time_or_null
from sim.runlog.line_types import (
    DECISION_LINES,
    FLEET_LINES,
    META_LINE,
    RUN_LINES,
    check_line,
    check_requests,
)
from sim.runlog.servers import FLEET, ReplicaState
from sim.validation import check

SCHEMA = 1
# Keys of lines that are not called like the column that has their values.
_REQUEST_KEYS = {
    "cached_tokens": "cached_at_admit", "host_cached_tokens": "host_cached_at_admit",
    "drafted_tokens": "drafted", "accepted_tokens": "accepted",
}  # fmt: skip
_STEP_KEYS = {
    "num_decode_rows": "n_decode", "num_context_tokens": "ctx", "free_tokens": "free",
    "evictable_tokens": "evictable", "used_tokens": "used", "used_token_steps": "used",
    "host_used_tokens": "host_used",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The lines of a run log, with the keys of docs/reference/run-log.md.

    Attributes:
        path: the file that was read; empty for a run that is not on disk.
        steps: steps in order of launch.
        points: measured compositions of a profile, in order of measurement.
        requests: requests in order of arrival.
    """

    path: Path
    meta: Line
    steps: list[Line]
    points: list[Line]
    requests: list[Line]

    @classmethod
    def of_lines(cls, meta: Mapping[str, object], lines: Iterable[Line]) -> "RecordedRun":
        """The lines of a run that has not been written to disk."""
        by_kind: dict[str, list[Line]] = {kind: [] for kind in RUN_LINES}
        for line in lines:
            by_kind[line["kind"]].append(line)
        return cls(Path(), dict(meta), by_kind["step"], by_kind["point"], by_kind["req"])

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """Device, driver, libraries and model. Only logs in which they agree are comparable."""
        fingerprint: Mapping[str, Any] = self.meta["fingerprint"]
        return fingerprint


def write_run_log(path: Path, meta: Mapping[str, object], lines: Iterable[Line]) -> None:
    """Write a complete log; it is compressed if the name ends in `.gz`.

    `meta` is the content of the first line; `source` and `fingerprint` are required.
    """
    num_lines = 0
    with open_text(path) as file:
        file.write(to_json_line({"kind": "meta", "schema": SCHEMA, **meta}))
        for line in lines:
            file.write(to_json_line(line))
            num_lines += 1
        file.write(to_json_line({"kind": "end", "lines": num_lines}))


def measured_request_line(
    record: RequestRecord, token_ns: Sequence[int], *, has_drafts: bool = False
) -> Line:
    """The line of a request that has ended; `token_ns` has the times of its tokens."""
    spec = record.spec
    counts = {"cached_at_admit": record.cached_tokens}
    if has_drafts:
        counts["verify_steps"] = record.verify_steps
        counts |= {"drafted": record.drafted_tokens, "accepted": record.accepted_tokens}
    return request_line(
        spec.rid,
        (spec.arrival_ns, token_ns[0] if token_ns else -1, record.finish_ns),
        counts | {"retractions": record.retractions, "preemptions": record.preemptions},
        status=record.status.value,
        warm_up=spec.warm_up,
        measured={
            "tenant": spec.tenant,
            "priority": spec.priority or 0,
            "scheduled_ns": time_or_null(record.scheduled_ns),
            "prompt_tokens": record.prompt_tokens,
            "output_tokens": record.output_tokens,
            "aged": record.aged,
            "token_ns": list(token_ns),
        },
    )


def read_run_log(path: Path) -> RecordedRun:
    by_kind: dict[str, list[Line]] = {kind: [] for kind in RUN_LINES}
    meta: Line | None = None
    num_lines, end = 0, None
    for number, line in numbered_lines(path):
        where, kind = f"{path}:{number}", line.get("kind")
        if end is not None:
            raise InputError(f"{where}: a line after the end line")
        if meta is None:
            if kind != "meta":
                raise InputError(f"{where}: kind: a run log begins with meta, got {describe(kind)}")
            check(META_LINE, line, where)
            meta = line
        elif kind == "end":
            end = line.get("lines")
        else:
            by_kind[check_line(RUN_LINES, line, where)].append(line)
            num_lines += 1
    if meta is None:
        raise InputError(f"{path}: is empty, expected a run log")
    if end != num_lines:
        ending = f"it has {num_lines} lines, but its end line says {describe(end)}"
        raise InputError(f"{path}: is truncated: {'it has no end line' if end is None else ending}")
    check_requests(by_kind["req"], path)
    return RecordedRun(path, meta, by_kind["step"], by_kind["point"], by_kind["req"])


def load_run_log(recorded: RecordedRun) -> RunLog:
    """The numpy columns of a recorded run, which all reports read."""
    return RunLog(
        requests=_requests(recorded.requests),
        steps=_steps(recorded.steps),
        token_gaps=_token_gaps(recorded.requests),
        meta=recorded.meta,
    )


def _requests(lines: list[Line]) -> RequestColumns:
    computed: dict[str, Any] = {
        name: [line.get(name, "") for line in lines] for name in ("rid", "tenant", "status")
    }
    first_ns = [next(iter(line["token_ns"]), None) for line in lines]
    computed["first_token_ns"] = _column(first_ns)
    return RequestColumns(**_with_same(RequestColumns, computed, _REQUEST_KEYS, lines))


def _steps(lines: list[Line]) -> StepColumns:
    computed: dict[str, list[Any]] = {
        "num_steps": [1 for _ in lines],
        "mode": [ForwardMode[line["mode"].upper()] for line in lines],
        "num_prefill_tokens": [sum(new for _, _, new in line["prefill"]) for line in lines],
        "num_cached_tokens": [sum(cached for _, cached, _ in line["prefill"]) for line in lines],
        "num_loaded_tokens": [sum(n for _, n in line.get("loaded", ())) for line in lines],
        "num_prefill_rows": [len(line["prefill"]) for line in lines],
        "running": [line.get("slots", line.get("running", 0)) for line in lines],
        "device_ns": [line["t_end_ns"] - line["t_start_ns"] for line in lines],
    }
    columns = {name: _column(values) for name, values in computed.items()}
    return StepColumns(**_with_same(StepColumns, columns, _STEP_KEYS, lines))


def _with_same(
    table: type[RequestColumns | StepColumns],
    computed: Mapping[str, Any],
    keys: Mapping[str, str],
    lines: list[Line],
) -> dict[str, Any]:
    """The columns of a table: those in `computed`; the others have the values of one key each.

    `keys` has that key for columns that are not called like it.
    """
    same = [field.name for field in fields(table) if field.name not in computed]
    return {
        **computed,
        **{name: _column([line.get(keys.get(name, name), 0) for line in lines]) for name in same},
    }


def _token_gaps(lines: list[Line]) -> TokenGaps:
    measured = (line["token_ns"] for line in lines if not line.get("warm_up", False))
    gaps_of = [np.diff(np.array(token_ns, dtype=np.int64)) for token_ns in measured]
    gaps = np.concatenate([np.zeros(0, dtype=np.int64), *gaps_of])
    return TokenGaps(gaps, np.ones_like(gaps))


def _column(values: list[Any]) -> Int64:
    """Whole numbers; null is the time of an event that never happened."""
    return np.array([NOT_YET_NS if value is None else value for value in values], dtype=np.int64)


# Other lines of logs, which hold no decision of a scheduler.
_OTHER_KINDS = ("meta", "end", FLEET)


def read_decisions(path: Path) -> tuple[list[Line], list[Line]]:
    """Steps and requests of a decision log or a run log, each in the file's order."""
    steps: list[Line] = []
    requests: list[Line] = []
    for line in decision_lines(path):
        (steps if line["kind"] == "step" else requests).append(line)
    check_requests(requests, path)
    return steps, requests


def decision_lines(path: Path) -> Iterator[Line]:
    """Steps and requests one by one, checked as by `read_decisions`, but for equal ids."""
    has_steps = False
    for number, line in numbered_lines(path):
        if line.get("kind") in _OTHER_KINDS:
            continue
        has_steps |= check_line(DECISION_LINES, line, f"{path}:{number}") == "step"
        yield line
    if not has_steps:
        raise InputError(f'{path}: no line with "kind": "step"')


def read_lives(path: Path) -> Callable[[int, int], tuple[int, int]]:
    """Which replica a step or a request of a log belongs to, if replicas come and go.

    Returns a function from the number of a replica and a time to that number, and how often the
    replica had come up before that time.
    """
    ups: dict[int, list[int]] = {}
    for number, line in numbered_lines(path):
        if line.get("kind") == FLEET:
            check_line(FLEET_LINES, line, f"{path}:{number}")
            if line["state"] == ReplicaState.UP.value and line["t_ns"] > 0:
                ups.setdefault(line["replica"], []).append(line["t_ns"])
    # A request that arrives at the time at which a replica comes up is routed before that.
    return lambda replica, t_ns: (replica, bisect_left(ups.get(replica, ()), t_ns))


def first_difference(
    ours: Iterable[Line],
    theirs: Iterable[Line],
    differing_fields: Callable[[Line, Line], Sequence[str]],
) -> Divergence | None:
    """The first step at which two logs' steps differ; None if there is none.

    `differing_fields` returns the names of the fields in which two steps differ.
    """
    before: Line | None = None
    for number, (a, b) in enumerate(zip_longest(ours, theirs)):
        if a is None or b is None:
            return Divergence(f"step {number}", ("number of steps",), a, b, before)
        if fields := differing_fields(a, b):
            return Divergence(f"step {number}", tuple(fields), a, b, before)
        before = b
    return None


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
