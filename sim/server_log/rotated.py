"""The files of a rotated log: which of several belong together, and which comes first."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from sim.server_log.engine_log import EngineLog
from sim.server_log.records import LogEvent
from sim.server_log.text_lines import Lines

# `server.log.2.gz`, `server.log-20261127`, `0.log.20261127-093318`: the first group is the log.
_ROTATED = re.compile(r"(.+\.(?:log|out|txt))(?:[.-]\d{1,14}){0,2}(?:\.gz)?")


def logs_of(paths: Sequence[Path]) -> list[list[Path]]:
    """The files of each log: those whose names differ in what rotation adds are one log."""
    logs: dict[Path, list[Path]] = {}
    for path in paths:
        named = _ROTATED.fullmatch(path.name)
        logs.setdefault(path.parent / named[1] if named else path, []).append(path)
    return list(logs.values())


def in_order(paths: Sequence[Path], engine_log: Callable[[], EngineLog]) -> list[Path]:
    """The files of one log in the order of their first events.

    A file without events comes first: it may have nothing but the server's start.

    Raises:
        InputError: a file cannot be read.
    """
    if len(paths) == 1:
        return list(paths)
    return sorted(paths, key=lambda path: _begins_us(path, engine_log()))


def _begins_us(path: Path, engine_log: EngineLog) -> int:
    for line in (lines := Lines([path])):
        taken = engine_log.read(lines.number, line)
        if isinstance(taken, LogEvent) and taken.at_us is not None:
            return taken.at_us
    return -1
