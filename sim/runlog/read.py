"""Reads a decision log back: JSON lines, plain or gzipped."""

from pathlib import Path

from sim.core.errors import InputError
from sim.runlog.json_lines import Line, numbered_lines

# What a step and a request of our own logs always have.
_STEP_KEYS = ("replica", "t_decided_ns", "t_start_ns", "t_end_ns", "mode", "prefill", "ratio")
_REQUEST_KEYS = ("rid", "replica", "arrival_ns", "status")
# Lines a measured run's log has besides; they decide nothing.
_OTHER_KINDS = ("meta", "end")


def read_decisions(path: Path) -> tuple[list[Line], list[Line]]:
    """Steps and requests of a decision log or a run log, each in the file's order.

    Raises:
        InputError: unreadable, not JSON, or a line without the keys of
            docs/reference/decision-log.md.
    """
    steps: list[Line] = []
    requests: list[Line] = []
    for number, line in numbered_lines(path):
        kind = line.get("kind")
        if kind in _OTHER_KINDS:
            continue
        keys = {"step": _STEP_KEYS, "req": _REQUEST_KEYS}.get(str(kind))
        if keys is None:
            raise InputError(f"{path}:{number}: kind: must be step or req, got {kind!r}")
        for key in keys:
            if key not in line:
                raise InputError(f"{path}:{number}: {key}: missing")
        (steps if kind == "step" else requests).append(line)
    if not steps:
        raise InputError(f'{path}: no line with "kind": "step"')
    return steps, requests
