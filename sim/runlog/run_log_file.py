"""The run log on disk: what a real server did and when (docs/reference/run-log.md).

A decision log with a first line that says what ran where, measured times in every step, and a last
line that says it is whole. A profile's log has measured points in place of steps and requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.core.atomic import atomic_path
from sim.core.errors import InputError
from sim.engine.records import RequestRecord
from sim.runlog.json_lines import Line, numbered_lines, open_text, to_json_line
from sim.runlog.lines import RequestFacts, request_line, time_or_null

SCHEMA = 1

_STEP_KEYS = (
    "replica", "step", "t_decided_ns", "t_start_ns", "t_end_ns", "t_known_ns", "looks_ns",
    "host_ns", "forward_ns", "mode", "prefill", "n_decode", "ctx", "free", "evictable", "used",
    "queue",
)  # fmt: skip
_POINT_KEYS = ("mode", "prefill", "n_decode", "ctx", "forward_ns", "repeats")
_REQUEST_KEYS = (
    "rid", "replica", "arrival_ns", "scheduled_ns", "finish_ns", "prompt_tokens",
    "cached_at_admit", "output_tokens", "retractions", "preemptions", "status", "token_ns",
)  # fmt: skip
_KEYS = {"step": _STEP_KEYS, "point": _POINT_KEYS, "req": _REQUEST_KEYS}


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run log as read: lines are mappings with the keys of docs/reference/run-log.md.

    Attributes:
        path: where it was read from; empty for a run that was not.
        meta: the first line.
        steps: in order of launch.
        points: measured compositions of a profile, in order of measurement.
        requests: in order of arrival.
    """

    path: Path
    meta: Line
    steps: list[Line]
    points: list[Line]
    requests: list[Line]

    @classmethod
    def of_lines(cls, meta: Mapping[str, object], lines: Iterable[Line]) -> "RecordedRun":
        """A run that has just been measured and is on no disk yet."""
        by_kind: dict[str, list[Line]] = {kind: [] for kind in _KEYS}
        for line in lines:
            by_kind[line["kind"]].append(line)
        return cls(Path(), dict(meta), by_kind["step"], by_kind["point"], by_kind["req"])

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """Device, driver, libraries, model: logs are comparable where these agree."""
        fingerprint: Mapping[str, Any] = self.meta["fingerprint"]
        return fingerprint


def write_run_log(path: Path, meta: Mapping[str, object], lines: Iterable[Line]) -> None:
    """Write a whole log; compressed if the name ends in `.gz`.

    Args:
        path: the file to write.
        meta: goes into the first line; needs `source` and `fingerprint`.
        lines: mappings with a `kind` each: steps, points, requests.

    Raises:
        InputError: the file cannot be written.
    """
    num_lines = 0
    with (
        atomic_path(path) as beside,
        open_text(beside, compressed=path.suffix == ".gz") as file,
    ):
        file.write(to_json_line({"kind": "meta", "schema": SCHEMA, **meta}))
        for line in lines:
            file.write(to_json_line(line))
            num_lines += 1
        file.write(to_json_line({"kind": "end", "lines": num_lines}))


def measured_request_line(record: RequestRecord, token_ns: Sequence[int]) -> Line:
    """The line of a request that is over, whose tokens came at these times."""
    spec = record.spec
    facts = RequestFacts(
        rid=spec.rid,
        replica=0,
        arrival_ns=spec.arrival_ns,
        first_token_ns=token_ns[0] if token_ns else -1,
        finish_ns=record.finish_ns,
        cached_tokens=record.cached_tokens,
        host_cached_tokens=None,
        retractions=record.retractions,
        preemptions=record.preemptions,
        status=record.status.value,
    )
    return request_line(
        facts,
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
    """Read a whole log.

    Raises:
        InputError: unreadable, truncated, of another schema, or a line lacks a key.
    """
    by_kind: dict[str, list[Line]] = {kind: [] for kind in _KEYS}
    meta: Line | None = None
    num_lines, end = 0, None
    for number, line in numbered_lines(path):
        where, kind = f"{path}:{number}", line.get("kind")
        if end is not None:
            raise InputError(f"{where}: a line after the end line")
        if meta is None:
            meta = _check_meta(line, where)
        elif kind == "end":
            end = line.get("lines")
        else:
            by_kind[_check_kind(line, where)].append(line)
            num_lines += 1
    if meta is None:
        raise InputError(f"{path}: is empty, expected a run log")
    if end != num_lines:
        raise InputError(f"{path}: is truncated: {_ending(end, num_lines)}")
    return RecordedRun(path, meta, by_kind["step"], by_kind["point"], by_kind["req"])


def _check_meta(line: Line, where: str) -> Line:
    if line.get("kind") != "meta":
        raise InputError(f"{where}: kind: a run log begins with meta, got {line.get('kind')!r}")
    if line.get("schema") != SCHEMA:
        raise InputError(f"{where}: schema: must be {SCHEMA}, got {line.get('schema')!r}")
    for key, kind in (("source", str), ("fingerprint", dict)):
        if not isinstance(line.get(key), kind):
            raise InputError(f"{where}: {key}: missing or not of its type")
    return line


def _check_kind(line: Line, where: str) -> str:
    kind = line.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise InputError(f"{where}: kind: must be one of {', '.join(_KEYS)}, got {kind!r}")
    for key in _KEYS[kind]:
        if key not in line:
            raise InputError(f"{where}: {key}: missing")
    return kind


def _ending(end: object, num_lines: int) -> str:
    if end is None:
        return "it has no end line"
    return f"it has {num_lines} lines, its end line says {end!r}"
