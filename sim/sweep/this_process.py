"""Runs points in this process, one after the other."""

from collections.abc import Iterable

from sim.sweep.executor import PointOutcomes, PointRunner, Task, run_task
from sim.sweep.trace_cache import TraceCache


class ThisProcess:
    """A `SweepExecutor` that starts no process: for a few quick points."""

    def run(self, tasks: Iterable[Task], runner: PointRunner) -> PointOutcomes:
        read_trace = TraceCache()
        for task in tasks:
            yield run_task(task, runner, read_trace)
