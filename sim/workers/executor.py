"""The protocol of executors, which run tasks in workers; the tasks and their outcomes."""

import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from sim.core.errors import InputError
from sim.workers.trace_cache import TraceCache
from sim.workload.traces.read import TraceReader

# What a worker is told to do, and what it gives back.
W = TypeVar("W")
R = TypeVar("R")

# Does the work of one task; a module-level function, so that workers can import it.
Runner = Callable[[W, TraceReader], R]


class TaskStatus(StrEnum):
    """How a task ended."""

    DONE = "done"
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
        key: the key of the task.
        status: how it ended.
        result: what the runner returned: of a point, its summary; None if it failed.
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


class TaskExecutor(Protocol):
    """Runs many tasks. An outcome depends on its task alone, never on where or when it ran."""

    def run(self, tasks: Iterable[Task[W]], runner: Runner[W, R]) -> Outcomes[R]:
        """Yield one outcome for each task, as it ends. Closing the iterator stops all workers.

        The next task is taken from `tasks` when a worker is free. If a worker dies, the outcome of
        the task that it ran is a fault, and the other tasks go on.
        """
        ...


def run_task(task: Task[W], runner: Runner[W, R], read_trace: TraceReader) -> TaskOutcome[R]:
    """Run a task in a worker. Raises only what shall end the worker, such as KeyboardInterrupt."""
    begin_s = time.perf_counter()
    message = trace = result = None
    try:
        result = runner(task.work, read_trace)
        status = TaskStatus.DONE
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
