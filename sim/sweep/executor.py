"""The protocol of executors, which run points; the tasks they take and the outcomes they give."""

import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sim.core.errors import InputError
from sim.metrics.summary import Summary
from sim.scenario.load import LoadedScenario
from sim.workload.traces.read import TraceReader

# Runs one point; a module-level function, so that workers can import it.
PointRunner = Callable[[LoadedScenario, TraceReader], Summary]


class PointStatus(StrEnum):
    """How a point ended."""

    DONE = "done"
    BAD_INPUT = "bad input"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Task:
    """A point that a worker is to run.

    Attributes:
        key: the key under which its outcome is stored.
        loaded: its scenario; files in it are looked for in `base_dir`, an absolute path.
    """

    key: str
    loaded: LoadedScenario


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """How a point ended, with its result.

    Attributes:
        key: the key of its task.
        status: how it ended.
        summary: its metrics, as JSON values; None if it failed.
        message: one line on what went wrong; None if it is done.
        trace: Python's traceback of a fault.
        wall_seconds: how long it ran, until its end or its failure; None: not known.
    """

    key: str
    status: PointStatus
    summary: Summary | None = None
    message: str | None = None
    trace: str | None = None
    wall_seconds: float | None = None


# One outcome for each task, in the order in which the tasks end.
PointOutcomes = Generator[PointOutcome, None, None]


class SweepExecutor(Protocol):
    """Runs many tasks. An outcome depends on its task alone, never on where or when it ran."""

    def run(self, tasks: Iterable[Task], runner: PointRunner) -> PointOutcomes:
        """Yield one outcome for each task, as it ends. Closing the iterator stops all workers.

        The next task is taken from `tasks` when a worker is free. If a worker dies, the outcome of
        the task that it ran is a fault, and the other tasks go on.

        Raises:
            InputError: the executor cannot be used here.
        """
        ...


def run_task(task: Task, runner: PointRunner, read_trace: TraceReader) -> PointOutcome:
    """Run a task in a worker. Raises only what shall end the worker, such as KeyboardInterrupt."""
    begin_s = time.perf_counter()
    message = trace = summary = None
    try:
        summary = runner(task.loaded, read_trace)
        status = PointStatus.DONE
    except InputError as error:
        status, message = PointStatus.BAD_INPUT, " ".join(str(error).split())
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        status, trace = PointStatus.FAULT, traceback.format_exc()
    return PointOutcome(task.key, status, summary, message, trace, time.perf_counter() - begin_s)
