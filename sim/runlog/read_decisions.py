"""Reads and compares the decisions in decision logs and run logs.

docs/reference/decision-log.md explains each key.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from sim.core.errors import InputError
from sim.engine.replay.decision import Divergence
from sim.runlog.json_lines import Line, numbered_lines
from sim.runlog.line_types import DECISION_LINES, FLEET_LINES, check_line, check_requests
from sim.runlog.servers import FLEET, ReplicaState

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

    Returns:
        A function from the number of a replica and a time to that number, and how often the replica
        had come up before that time.
    """
    ups: dict[int, list[int]] = {}
    for number, line in numbered_lines(path):
        if line.get("kind") == FLEET:
            check_line(FLEET_LINES, line, f"{path}:{number}")
            if line["state"] == ReplicaState.UP.value and line["t_ns"] > 0:
                ups.setdefault(line["replica"], []).append(line["t_ns"])
    # A request that arrives at the very time is routed before the replica comes up.
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
