"""Runs the points of a sweep that are not stored yet, and stores every outcome, one file each."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from sim.core.errors import InputError
from sim.core.files import json_digest, json_text, write_text
from sim.core.packed import read_json_object
from sim.latency.architectures.model_key import MODEL_FILES
from sim.latency.config import ProfileLatencyConfig
from sim.latency.profile.format import shipped_profiles
from sim.metrics.early_stop import StoppedRun
from sim.metrics.summary import Summary
from sim.metrics.summary_type import check_summary
from sim.scenario.load import LoadedScenario
from sim.scenario.overrides import FILE_KEYS
from sim.scenario.schema import BESIDE_THE_RUN, Scenario
from sim.sweep.plan import Plan, Point, Settings
from sim.validation import OPEN, Number, check
from sim.workers.executor import PointWork, Runner, Task, TaskExecutor, TaskOutcome, TaskStatus
from sim.workload.traces.files import TOKENIZER_FILE

# Runs one point; a module-level function, so that workers can import it.
PointRunner = Runner[PointWork, Summary]
# How a point ended; its result is its metrics, or what is known of a run that was stopped, as JSON
# values.
PointOutcome = TaskOutcome[Summary]


# The folder of points, inside the folder of a sweep.
POINTS = "points"

_SCHEMA = 1
_NAME = re.compile(r"[0-9a-f]{64}\.json")
_TEMPORARY = re.compile(r"\.(\d{1,9})-[0-9a-f]+\.tmp")

StoredPoint = dict[str, Any]


class _PointFile(TypedDict):
    """The content of a file, without its digest."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    schema: Literal[1]
    code: str
    key: str
    status: Literal["done", "stopped", "bad input", "fault"]
    summary: dict[str, Any] | None
    message: str | None
    trace: str | None
    wall_seconds: Number | None


_POINT_FILE = TypeAdapter(_PointFile)
_STOPPED_RUN = TypeAdapter(StoppedRun)


@dataclass(frozen=True, slots=True)
class StoreContents:
    """What a folder of points has.

    Attributes:
        outcomes: the points asked for that were found, by key.
        num_other_code: files that are not used because another version of the code stored them.
        num_damaged: files that are not used because they are incomplete or not named after their
            key.
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
        stored = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
        stored = {"summary" if key == "result" else key: value for key, value in stored.items()}
        content = {"schema": _SCHEMA, "code": self._code, **described, **stored}
        # The digest tells, after a crash of the machine, whether the file lacks some of its bytes.
        whole = {"digest": json_digest(content), **content}
        write_text(
            self._folder / point_file(outcome.key), json_text(whole, indent=1, ascii_only=True)
        )

    def _paths(self) -> list[Path]:
        try:
            paths = sorted(self._folder.iterdir())
        except OSError as error:
            raise InputError(f"{self._folder}: cannot be read: {error.strerror}") from error
        for path in paths:
            if (left := _TEMPORARY.fullmatch(path.name)) and not _may_run(int(left[1])):
                path.unlink(missing_ok=True)
        return [path for path in paths if _NAME.fullmatch(path.name)]


def point_file(key: str) -> str:
    """The name of a point's file."""
    return f"{key}.json"


def read_point(path: Path) -> StoredPoint | None:
    """The content of a file that is whole and named after its key, whatever code stored it."""
    try:
        point = read_json_object(path, is_input=False)
        if point.pop("digest", None) != json_digest(point) or point.get("key") != path.stem:
            return None
        check(_POINT_FILE, point, str(path))
        if point["status"] == TaskStatus.DONE:
            check_summary(point["summary"], f"{path}: summary")
        elif point["status"] == TaskStatus.STOPPED:
            check(_STOPPED_RUN, point["summary"], f"{path}: summary")
    except (InputError, ValueError, RecursionError):
        return None
    return point


def _outcome(point: StoredPoint) -> PointOutcome:
    fields = {name: point[name] for name in ("key", "message", "trace", "wall_seconds")}
    return TaskOutcome(status=TaskStatus(point["status"]), result=point["summary"], **fields)


def _may_run(pid: int) -> bool:
    """Whether a process with this id exists, or may exist."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class Identities:
    """Computes the keys of points; each file is read once."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._digests: dict[Path, str] = {}

    def key(self, loaded: LoadedScenario, least_attainment: float = 0.0) -> str:
        """SHA-256 in hex of everything a point's results depend on.

        A run that may be stopped has another key than a whole one: what is stored of it depends on
        when it stops. If a missing file appears later, the key changes.
        """
        digest = hashlib.sha256(f"{self._code}\0{loaded.content_hash}\0".encode())
        if least_attainment:
            digest.update(f"may stop below {least_attainment!r}\0".encode())
        scenarios = [loaded, *loaded.pools.values()]
        for each in scenarios:
            for path in named_files(each.scenario, each.base_dir):
                digest.update(f"{self._digest(path)}\0".encode())
        return digest.hexdigest()

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._digests[path] = _file_digest(path)
        return self._digests[path]


def named_files(scenario: Scenario, base_dir: Path) -> list[Path]:
    """The files of a scenario: traces, tables, profiles, recordings, host times, models.

    A name of packaged data gives a path that does not exist.
    """
    sections = scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN))
    named = [(key, base_dir / name) for key, name in _names(sections)]
    paths = [file for key, path in named for file in _files(key, path)]
    if isinstance(scenario.latency, ProfileLatencyConfig):
        # Shipped profiles are not in package `sim`, so the code's version does not cover them.
        shipped = shipped_profiles().get(scenario.latency.path)
        paths += [] if shipped is None else [Path(str(shipped))]
    return paths


def _files(key: str, path: Path) -> list[Path]:
    """The file itself; of a folder, what is read of it: not a model's weights."""
    if not path.is_dir():
        return [path]
    if key == "model":
        return [path / name for name in MODEL_FILES]
    if key == "tokenizer":
        return [path / TOKENIZER_FILE]
    if key == "engine":
        return []  # the content hash has what its scheduler is made of
    return sorted(file for file in path.rglob("*") if file.is_file())


def _names(value: object) -> Iterator[tuple[str, str]]:
    """Keys that name files, and the names."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in FILE_KEYS and isinstance(item, str):
                yield key, item
            else:
                yield from _names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


def _file_digest(path: Path) -> str:
    try:
        if not path.is_file():
            return "none"
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        # The worker that runs the point reports the error.
        return "unreadable"


# Called before the first point of a run and after each, with numbers of points: those that have an
# outcome, those of them that had to run, and those that this run has still to do.
Watcher = Callable[[int, int, int], None]


class StoredPoints:
    """Runs points and stores every outcome at once: known or stored points are not run again.

    With `fresh`, no point that was stored before is used.
    """

    def __init__(
        self,
        store: PointStore,
        executor: TaskExecutor,
        runner: PointRunner,
        *,
        code: str,
        fresh: bool = False,
    ) -> None:
        self._store = store
        self._executor = executor
        self._runner = runner
        self._identities = Identities(code)
        self._fresh = fresh
        # The keys of points, by the hash of their scenarios and by when they may stop.
        self._keys: dict[tuple[str, float], str] = {}
        self._outcomes: dict[str, PointOutcome] = {}
        self.num_settled = 0
        self.num_run = 0

    def read(self, plan: Plan) -> StoreContents:
        """Read what is stored of a plan, and count what of the folder cannot be used.

        Raises:
            InputError: the store cannot be read.
        """
        contents = self._store.read(self.key(plan, point) for point in plan.points)
        if not self._fresh:
            self._outcomes |= contents.outcomes
        return contents

    def key(self, plan: Plan, point: Point) -> str:
        """The key under which a point is stored; equal points have equal keys."""
        what = (point.content_hash, point.least_attainment)
        if what not in self._keys:
            self._keys[what] = self._identities.key(plan.vary(point.settings), what[1])
        return self._keys[what]

    def run(
        self, plan: Plan, groups: Iterable[Sequence[Point]], watcher: Watcher
    ) -> list[tuple[PointOutcome, ...]]:
        """The outcomes of groups of points, in their order; run as one, so all workers are busy.

        Points without a success are run; every outcome is stored before the next one is awaited.

        Raises:
            InputError: an outcome cannot be stored, or the executor cannot be used. The workers are
                stopped; what was stored stays.
        """
        listed = list(groups)
        points: dict[str, Point] = {}
        for point in chain.from_iterable(listed):
            points.setdefault(self.key(plan, point), point)
        keys = [[self.key(plan, point) for point in group] for group in listed]
        if not self._fresh:
            unknown = [key for key in points if key not in self._outcomes]
            self._outcomes |= self._store.find(unknown)
        missing = {key: point for key, point in points.items() if not self._is_done(key)}
        self.num_settled += sum(key not in missing for key in chain.from_iterable(keys))
        num_left = len(missing)
        watcher(self.num_settled, self.num_run, num_left)
        given: dict[str, PointWork] = {}
        tasks = _tasks(plan, missing, given)
        with closing(self._executor.run(tasks, self._runner)) as arriving:
            for outcome in arriving:
                settings = missing[outcome.key].settings
                self._store.write(outcome, _description(settings, given.pop(outcome.key)))
                self._outcomes[outcome.key] = outcome
                self.num_settled, self.num_run = self.num_settled + 1, self.num_run + 1
                num_left -= 1
                watcher(self.num_settled, self.num_run, num_left)
        return [tuple(self._outcomes[key] for key in group) for group in keys]

    def _is_done(self, key: str) -> bool:
        known = self._outcomes.get(key)
        return known is not None and known.status in {TaskStatus.DONE, TaskStatus.STOPPED}


def _tasks(
    plan: Plan, points: Mapping[str, Point], given: dict[str, PointWork]
) -> Iterator[Task[PointWork]]:
    """A task for each point; `given` gets the work of those that executors have taken.

    They have absolute folders: a worker may run in another folder.
    """
    for key, point in points.items():
        loaded = plan.vary(point.settings)
        loaded = replace(loaded, base_dir=loaded.base_dir.resolve())
        given[key] = PointWork(loaded, point.least_attainment)
        yield Task(key, given[key])


def _description(settings: Settings, work: PointWork) -> dict[str, object]:
    described = work.loaded.scenario.model_dump(mode="json", exclude=set(BESIDE_THE_RUN))
    least = work.least_attainment
    return {
        "settings": dict(settings),
        **({"least_attainment": least} if least else {}),
        "scenario": described,
    }
