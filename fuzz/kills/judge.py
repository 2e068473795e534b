"""Says what a killed command has not kept of what docs/explanation/promises.md promises."""

import json
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fuzz.kills.commands import KilledCommand, lines_of
from fuzz.kills.process import MAX_S, ROOT, TEMPORARY, Killed
from fuzz.kills.whole import is_temporary, why_broken
from sim.sweep.store import read_point

_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_DEFECTS = ("Traceback (most recent call last)", "internal error", "Exception ignored", "Warning:")
_FRAME = re.compile(r'^  File "(.*)", line \d+', re.MULTILINE)
_STORED = re.compile(r": ([\d,]+) more points are stored")


class Reference(NamedTuple):
    """What a run that nothing killed has left.

    Attributes:
        files: its files, by their path in the folder.
        inputs: the files that it was given.
        same: see `KilledCommand`.
        seconds: how long it took.
        left: what it leaves in the system's folder for temporary files, such as a library's cache.
    """

    files: Mapping[str, bytes]
    inputs: Mapping[str, bytes]
    same: object
    seconds: float
    left: frozenset[str] = frozenset()


def files_in(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by their path in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def left_by(folder: Path) -> frozenset[str]:
    """What a command in this folder has left in the system's folder for temporary files."""
    return frozenset(path.name for path in (folder.parent / TEMPORARY).rglob("*"))


def is_before_start(killed: Killed, number: int) -> bool:
    """Whether a signal came before the command took it, for example while Python itself began."""
    if number == signal.SIGKILL:
        return False
    frames = _FRAME.findall(killed.err)
    return killed.code == -number or (
        # Python shows a traceback then, in which no file of ours is.
        killed.code in {1, 130} and bool(frames) and str(ROOT) not in "".join(frames)
    )


def faults_of_kill(
    command: KilledCommand, reference: Reference, folder: Path, killed: Killed, number: int
) -> Iterator[str]:
    """What is wrong after a kill by the signal of this number."""
    if killed.code is None:
        yield f"still runs {MAX_S:.0f} s after the signal"
        return
    if not is_before_start(killed, number):
        if killed.code not in {*command.done, _CODES[signal.Signals(number)]}:
            yield f"exit code {killed.code}"
        yield from _of_words(killed, number)
    if killed.num_left:
        yield f"{killed.num_left} processes outlived it"
    yield from _of_files(command, reference, folder)
    if number != signal.SIGKILL:
        names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        yield from (f"left {name}" for name in names if is_temporary(name))
        yield from (f"left {name}" for name in sorted(left_by(folder) - reference.left))
    if command.points:
        yield from _of_points(command, reference, folder, killed)
    if command.num_asked and killed.code == 0:
        yield from _of_served(folder, killed)


def faults_of_next(
    command: KilledCommand,
    reference: Reference,
    folder: Path,
    again: Killed,
    kept: Mapping[str, tuple[bytes, int]],
) -> Iterator[str]:
    """What is wrong after the same command has run again; `kept` are the points that it found."""
    if again.code != 0:
        yield f"run again: exit code {again.code}"
    yield from (f"run again: {why}" for why in _of_words(again, 0))
    found = files_in(folder)
    for name, content in reference.files.items():
        if _matches(name, command.results) and found.get(name) != content:
            yield f"run again: {name} differs" if name in found else f"run again: no {name}"
    if again.code == 0 and command.same is not None and command.same(folder) != reference.same:
        yield "run again: other requests"
    for name, was in kept.items():
        if stamped(folder / name) != was:
            yield f"run again: wrote {name} anew"
    if command.points:
        points = {name for name in reference.files if name.startswith(command.points)}
        yield from (f"run again: no {name}" for name in points - found.keys())
        left = (name for name in found if name.startswith(command.points) and is_temporary(name))
        yield from (f"run again: left {name}" for name in left)


def points_in(command: KilledCommand, folder: Path) -> dict[str, tuple[bytes, int]]:
    """The points that are stored, and when each was written."""
    paths = (folder / command.points).glob("*.json") if command.points else ()
    return {str(path.relative_to(folder)): stamped(path) for path in sorted(paths)}


def stamped(path: Path) -> tuple[bytes, int]:
    return path.read_bytes(), path.stat().st_mtime_ns


def _of_words(killed: Killed, number: int) -> Iterator[str]:
    yield from (mark for mark in _DEFECTS if mark in killed.err)
    words = _WORDS.get(signal.Signals(number)) if number else None
    lines = killed.err.splitlines() or [""]
    if words and killed.code in {130, 143} and not lines[-1].endswith(f": {words}"):
        yield f"does not say that it was {words}"


def _of_files(command: KilledCommand, reference: Reference, folder: Path) -> Iterator[str]:
    found = files_in(folder)
    for name, content in reference.inputs.items():
        if found.pop(name, None) != content:
            yield f"changed its input {name}"
    for name, content in found.items():
        if is_temporary(name):
            continue
        if why := why_broken(folder / name):
            yield f"{name} is not whole: {why}"
        elif name not in reference.files:
            yield f"wrote {name}, which no other run writes"
        elif _matches(name, command.results) and content != reference.files[name]:
            yield f"{name} differs from that of a whole run"


def _of_points(
    command: KilledCommand, reference: Reference, folder: Path, killed: Killed
) -> Iterator[str]:
    names = [name for name in files_in(folder) if name.startswith(command.points)]
    names = [name for name in names if not is_temporary(name)]
    for name in names:
        point = read_point(folder / name)
        if point is None:
            yield f"{name} is damaged"
        elif _lasting(point) != _lasting(json.loads(reference.files.get(name, b"{}"))):
            yield f"{name} differs from that of a whole run"
    said = _STORED.search(killed.err)
    # One may have been stored, and not been counted yet.
    if said is not None and len(names) - int(said[1].replace(",", "")) not in {0, 1}:
        yield f"says that {said[1]} points are stored, but {len(names)} are"


def _lasting(point: Mapping[str, object]) -> dict[str, object]:
    """A point without how long it took, and the digest of it."""
    return {key: value for key, value in point.items() if key not in {"wall_seconds", "digest"}}


def _of_served(folder: Path, killed: Killed) -> Iterator[str]:
    """A server that ended well has the traffic that it answered."""
    traffic = folder / "out/workload.jsonl.gz"
    num = len(lines_of(traffic)) if traffic.exists() else 0
    if num < killed.num_answered:
        yield f"kept {num} of {killed.num_answered} requests that were answered"


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(Path(name).match(pattern) for pattern in patterns)
