"""The protocol of executors, which run tasks in workers; the tasks, their outcomes, kept traces."""

import hashlib
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from sim import __version__
from sim.core.errors import InputError
from sim.core.garbage import rare_collections
from sim.metrics.early_stop import RunStoppedError
from sim.scenario.load import LoadedScenario
from sim.workload.config import READ_KEYS, TraceConfig
from sim.workload.traces.files import trace_files
from sim.workload.traces.read import TraceReader, read_trace
from sim.workload.traces.rows import TraceRows

_MAX_BYTES = 1 << 30
# About the size of a Python string or small object in a list.
_ITEM_BYTES = 64

# The files and the settings that they are read with. Equal keys have equal rows.
_Key = tuple[object, ...]


class TraceCache:
    """A `TraceReader` that keeps the rows it has read; it drops the least recently used ones first.

    Args:
        max_bytes: about how much is kept; the newest rows are kept whatever their size.
        reader: reads a trace that is not kept.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES, reader: TraceReader = read_trace) -> None:
        self._max_bytes = max_bytes
        self._reader = reader
        self._rows: OrderedDict[_Key, TraceRows] = OrderedDict()
        self.num_read = 0

    def __call__(self, config: TraceConfig, base_dir: Path) -> TraceRows:
        """The rows of the trace; callers must not change them."""
        key = _key(config, base_dir)
        if key not in self._rows:
            self.num_read += 1
            self._rows[key] = self._reader(config, base_dir)
        self._rows.move_to_end(key)
        while len(self._rows) > 1 and self.num_bytes > self._max_bytes:
            self._rows.popitem(last=False)
        return self._rows[key]

    @property
    def num_bytes(self) -> int:
        """About how much memory the kept rows take."""
        return sum(_num_bytes(rows) for rows in self._rows.values())


def _key(config: TraceConfig, base_dir: Path) -> _Key:
    path = base_dir / config.path
    try:
        files = [path, *trace_files(path)] if path.is_dir() else [path]
        states = tuple(map(_state, files))
        if config.tokenizer is not None:
            states += (_state(base_dir / config.tokenizer),)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None
    return (str(path), states, *(getattr(config, key) for key in READ_KEYS))


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _num_bytes(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if is_dataclass(value):
        return sum(_num_bytes(getattr(value, field.name)) for field in fields(value))
    return _ITEM_BYTES * len(value) if isinstance(value, list | tuple) else 0


# What a worker is told to do, and what it gives back.
W = TypeVar("W")
R = TypeVar("R")

# Does the work of one task; a module-level function, so that workers can import it.
Runner = Callable[[W, TraceReader], R]


class TaskStatus(StrEnum):
    """How a task ended; `STOPPED`: early, because what was asked of it is known."""

    DONE = "done"
    STOPPED = "stopped"
    BAD_INPUT = "bad input"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Task(Generic[W]):
    """What a worker is to do: a point of a sweep, or a part of a run.

    Attributes:
        key: names its outcome.
        work: what the runner is given. Files that it names are looked for in absolute folders.
    """

    key: str
    work: W


@dataclass(frozen=True, slots=True)
class TaskOutcome(Generic[R]):
    """How a task ended, with its result.

    Attributes:
        result: what the runner returned: of a point, its summary; None if it failed. Of a run that
            was stopped: what is known of it (`sim.metrics.early_stop.StoppedRun`).
        message: one line on what went wrong; None if it is done.
        trace: Python's traceback of a fault.
        wall_seconds: how long it ran, until its end or its failure; None: not known.
    """

    key: str
    status: TaskStatus
    result: R | None = None
    message: str | None = None
    trace: str | None = None
    wall_seconds: float | None = None


# One outcome for each task, in the order in which the tasks end.
Outcomes = Generator[TaskOutcome[R], None, None]


class PointWork(NamedTuple):
    """The run of a point of a sweep or a search.

    Attributes:
        least_attainment: once the run's SLO attainment is certain to be lower, it stops; 0: it
            never does.
    """

    loaded: LoadedScenario
    least_attainment: float = 0.0


class TaskExecutor(Protocol):
    """Runs many tasks. An outcome depends on its task alone, never on where or when it ran."""

    def run(self, tasks: Iterable[Task[W]], runner: Runner[W, R]) -> Outcomes[R]:
        """Yield one outcome for each task, as it ends. Closing the iterator stops all workers.

        The next task is taken from `tasks` when a worker is free. If a worker dies, the outcome of
        the task that it ran is a fault, and the other tasks go on.
        """
        ...


def run_task(task: Task[W], runner: Runner[W, R], read_trace: TraceReader) -> TaskOutcome[R]:
    """Run a task in a worker. Raises only what shall end the worker, such as KeyboardInterrupt.

    Garbage is collected after the task: by then nearly all that it made is gone, so there is little
    to look through. A simulation, which collects at its end, would look through all that it has.
    """
    begin_s = time.perf_counter()
    message = trace = result = None
    try:
        with rare_collections():
            result = runner(task.work, read_trace)
        status = TaskStatus.DONE
    except RunStoppedError as stopped:
        status, [result] = TaskStatus.STOPPED, stopped.args
    except InputError as error:
        status, message = TaskStatus.BAD_INPUT, " ".join(str(error).split())
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        status, trace = TaskStatus.FAULT, traceback.format_exc()
    return TaskOutcome(task.key, status, result, message, trace, time.perf_counter() - begin_s)


class ThisProcess:
    """A `TaskExecutor` that starts no process: for a few quick tasks."""

    def run(self, tasks: Iterable[Task[W]], runner: Runner[W, R]) -> Outcomes[R]:
        read_trace = TraceCache()
        for task in tasks:
            yield run_task(task, runner, read_trace)


# Suffixes of files that results depend on; caches of compiled code are not among them.
_SOURCES = (".py", ".json", ".yaml")
# What no run imports: commands, pages, tables and searches, which show results or ask for them.
_BESIDE_RUNS = (
    "__main__.py", "api/", "cli.py", "command_line.py", "commands/", "contest/", "new/",
    "playground/", "report/", "sweep/", "tables/", "testing/",
)  # fmt: skip
# But these of them a run imports.
_IN_RUNS = (
    "commands/running/points.py", "commands/running/simulate.py", "contest/slowdown.py",
    "report/progress.py", "tables/csv_table.py",
)  # fmt: skip


@cache
def code_version() -> str:
    """The version of servetwin and a hash of the sources that decide results: `0.1.0+5f0c...`.

    Results of other versions are not used, and machines must agree.
    """
    digest = hashlib.sha256()
    for name, source in deciding_sources():
        content = source.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{__version__}+{digest.hexdigest()[:16]}"


def deciding_sources() -> list[tuple[str, Traversable]]:
    """The files that decide the results of a run, with their paths inside package `sim`."""
    return sorted(
        (name, source)
        for name, source in _sources(files("sim"), "")
        if not name.startswith(_BESIDE_RUNS) or name in _IN_RUNS
    )


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SOURCES):
            yield prefix + entry.name, entry
