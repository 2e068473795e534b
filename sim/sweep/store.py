"""Stores finished points, one file each. Points of another version of the code are not used."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from sim.core.errors import InputError
from sim.core.files import atomic_path
from sim.core.packed import read_json_object
from sim.metrics.summary import Summary
from sim.metrics.summary_type import check_summary
from sim.scenario.load import LoadedScenario
from sim.validation import OPEN, Number, check
from sim.workers.executor import Runner, TaskOutcome, TaskStatus

# Runs one point; a module-level function, so that workers can import it.
PointRunner = Runner[LoadedScenario, Summary]
# How a point ended; its result is its metrics, as JSON values.
PointOutcome = TaskOutcome[Summary]


# The folder of points, inside the folder of a sweep.
POINTS = "points"

_SCHEMA = 1
_NAME = re.compile(r"[0-9a-f]{64}\.json")
_TEMPORARY = re.compile(r"\.(\d{1,9})-[0-9a-f]+\.tmp")

Stored = dict[str, Any]


class _Stored(TypedDict):
    """The content of a file, without its digest."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    schema: Literal[1]
    code: str
    key: str
    status: Literal["done", "bad input", "fault"]
    summary: dict[str, Any] | None
    message: str | None
    trace: str | None
    wall_seconds: Number | None


_STORED = TypeAdapter(_Stored)


@dataclass(frozen=True, slots=True)
class StoreContents:
    """What `PointStore.read` found in a folder of points.

    Attributes:
        outcomes: the points asked for that were found, by key.
        num_other_code: points that other versions of the code ran; they are not used.
        num_damaged: files that are incomplete, or whose key is not their name; they are not used.
    """

    outcomes: Mapping[str, PointOutcome]
    num_other_code: int
    num_damaged: int

    def unused_in_words(self) -> str:
        """The unused files, as the end of a sentence: `; 3 damaged files are not used`."""
        text = ""
        if self.num_other_code:
            text += f"; {self.num_other_code:,} stored by another version of the code are not used"
        if self.num_damaged:
            text += f"; {self.num_damaged:,} damaged files are not used"
        return text


class PointStore:
    """A folder of points. Several sweeps may share it: equal points have equal content."""

    def __init__(self, folder: Path, code: str) -> None:
        self._folder = folder
        self._code = code

    def read(self, keys: Iterable[str]) -> StoreContents:
        """Read all files. Unfinished ones, of a sweep that was killed, are removed."""
        wanted = set(keys)
        outcomes: dict[str, PointOutcome] = {}
        num_other = num_damaged = 0
        for path in self._paths():
            point = read_point(path)
            if point is None:
                num_damaged += 1
            elif point["code"] != self._code:
                num_other += 1
            elif path.stem in wanted:
                outcomes[path.stem] = _outcome(point)
        return StoreContents(outcomes, num_other, num_damaged)

    def find(self, keys: Iterable[str]) -> dict[str, PointOutcome]:
        """Read the files of these points alone; points without a usable file are left out."""
        outcomes = {}
        for key in keys:
            point = read_point(self._folder / point_file(key))
            if point is not None and point["code"] == self._code:
                outcomes[key] = _outcome(point)
        return outcomes

    def write(self, outcome: PointOutcome, described: Mapping[str, object]) -> None:
        """Store a point.

        Raises:
            InputError: it cannot be written; an older file of the point stays.
        """
        stored = {"summary" if key == "result" else key: value
                  for key, value in asdict(outcome).items()}  # fmt: skip
        content = {"schema": _SCHEMA, "code": self._code, **described, **stored}
        text = json.dumps({"digest": digest_of(content), **content}, indent=1, allow_nan=False)
        with atomic_path(self._folder / point_file(outcome.key)) as beside:
            beside.write_text(f"{text}\n", encoding="utf-8")

    def _paths(self) -> list[Path]:
        try:
            paths = sorted(self._folder.iterdir())
        except OSError as error:
            raise InputError(f"{self._folder}: cannot be read: {error.strerror}") from error
        for path in paths:
            if (left := _TEMPORARY.fullmatch(path.name)) and not _runs(int(left[1])):
                path.unlink(missing_ok=True)
        return [path for path in paths if _NAME.fullmatch(path.name)]


def point_file(key: str) -> str:
    """The name of a point's file."""
    return f"{key}.json"


def read_point(path: Path) -> Stored | None:
    """The content of a file, if it is whole and named after its key; any code may have run it."""
    try:
        point = read_json_object(path, is_input=False)
        if point.pop("digest", None) != digest_of(point) or point.get("key") != path.stem:
            return None
        check(_STORED, point, str(path))
        if point["status"] == TaskStatus.DONE:
            check_summary(point["summary"], f"{path}: summary")
    except (InputError, ValueError, RecursionError):
        return None
    return point


def digest_of(content: Mapping[str, object]) -> str:
    """A hash of the content. After a crash of the machine, a file may lack some of its bytes."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _outcome(point: Stored) -> PointOutcome:
    fields = {name: point[name] for name in ("key", "message", "trace", "wall_seconds")}
    return TaskOutcome(status=TaskStatus(point["status"]), result=point["summary"], **fields)


def _runs(pid: int) -> bool:
    """Whether a process with this id exists; True if that is not known."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
