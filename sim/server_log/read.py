"""Reads a server's log from beginning to end, in one file or in those of its rotation."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sim.core.errors import shorten
from sim.server_log.engine_log import EngineLog
from sim.server_log.records import Kind, LogEvent, LoggedServer
from sim.server_log.text_lines import Lines

_MAX_EXAMPLES = 3


class ServerLog:
    """One server's log, in one file or in several that follow each other.

    `events` reads it. The other attributes are complete when all events were taken.

    Attributes:
        counts: lines by kind; with those that were not understood they are all lines.
        num_not_understood: lines that begin as known ones do, but are damaged or of another form.
        not_understood: the first of them, each with its number.
    """

    def __init__(self, paths: Sequence[Path], engine_log: EngineLog) -> None:
        """Take the files in their order, and the reader of one engine's lines."""
        self.counts: Counter[Kind] = Counter()
        self.num_not_understood = 0
        self.not_understood: list[tuple[int, str]] = []
        self.paths = paths
        self._engine_log = engine_log

    def events(self) -> Iterator[LogEvent]:
        """Yield all events in the order of the log. Only one line is in memory at a time.

        Raises InputError: a file cannot be read.
        """
        read, counts, lines = self._engine_log.read, self.counts, Lines(self.paths)
        num_other = 0
        for line in lines:
            taken = read(lines.number, line)
            if taken is Kind.OTHER:
                num_other += 1
            elif taken is None:
                self._not_understood(lines.number, line)
            elif isinstance(taken, Kind):
                counts[taken] += 1
            else:
                counts[taken.kind] += 1
                yield taken
        self.counts += Counter({Kind.OTHER: num_other, Kind.CUT: lines.cut})

    @property
    def name(self) -> str:
        """What errors call it: its file, or its first and last one."""
        return " to ".join(dict.fromkeys(map(str, (self.paths[0], self.paths[-1]))))

    @property
    def server(self) -> LoggedServer:
        return self._engine_log.server

    @property
    def num_starts(self) -> int:
        return self._engine_log.num_starts

    @property
    def resolution_us(self) -> int:
        """The finest unit of its times, in microseconds."""
        return self._engine_log.times.resolution_us

    def notes(self) -> list[str]:
        """Sentences about what is not in the events, and about the clock."""
        notes = []
        if self.num_not_understood:
            number, text = self.not_understood[0]
            notes.append(
                f"not understood: {self.num_not_understood:,} lines, e.g. line {number}: {text}"
            )
        if self.counts[Kind.CUT]:
            notes.append(f"cut off, and not read: the last line of {self.counts[Kind.CUT]} files")
        for words, num_lines in self._engine_log.unknown.most_common(_MAX_EXAMPLES):
            notes.append(f"not known, and left out of {num_lines:,} lines: {words!r}")
        if self.num_starts > 1:
            notes.append(
                f"the log has {self.num_starts} starts of the server: its settings are those of the"
                " last"
            )
        if self._engine_log.times.uses_stamps:
            notes.append("times are those of the stamps before the lines")
        else:
            notes.append("times are by the server's clock, whose time zone is not in the log")
        return notes

    def _not_understood(self, number: int, line: bytes) -> None:
        self.num_not_understood += 1
        if len(self.not_understood) < _MAX_EXAMPLES:
            text = " ".join(line[:1000].decode(errors="replace").split())
            self.not_understood.append((number, shorten(text)))


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

    Raises InputError: a file cannot be read.
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
