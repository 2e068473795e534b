"""Where points run: the protocol of executors, what goes to a worker, what comes back."""

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

# Runs one point; a function of a module, so that workers can import it.
PointRunner = Callable[[LoadedScenario, TraceReader], Summary]


class PointStatus(StrEnum):
    """How a point ended."""

    DONE = "done"
    BAD_INPUT = "bad input"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Task:
    """A point on its way to a worker.

    Attributes:
        key: what its outcome is stored under.
        loaded: its scenario; files in it are looked for in `base_dir`, an absolute path.
    """

    key: str
    loaded: LoadedScenario


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """What became of a point.

    Attributes:
        key: of its task.
        status: how it ended.
        summary: its metrics, as JSON values; None unless it is done.
        message: one line on what went wrong; None if it is done.
        trace: Python's traceback of a fault.
        wall_seconds: how long it took, as far as it came.
    """

    key: str
    status: PointStatus
    summary: Summary | None = None
    message: str | None = None
    trace: str | None = None
    wall_seconds: float | None = None


# One outcome a task, as they come.
PointOutcomes = Generator[PointOutcome, None, None]


class SweepExecutor(Protocol):
    """Runs many tasks. An outcome depends on its task alone, never on where or when it ran."""

    def run(self, tasks: Iterable[Task], runner: PointRunner) -> PointOutcomes:
        """Yield one outcome a task, as they come. Closing the iterator stops all workers.

        `tasks` is taken from as workers become free. A worker that dies costs its own task: the
        outcome is a fault, and the rest goes on.

        Raises:
            InputError: the executor cannot be used here.
        """
        ...


def run_task(task: Task, runner: PointRunner, read_trace: TraceReader) -> PointOutcome:
    """What a worker does with a task. Only what ends the worker itself is raised."""
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
