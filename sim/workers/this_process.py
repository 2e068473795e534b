"""Runs tasks in this process, one after the other."""

from collections.abc import Iterable

from sim.workers.executor import Outcomes, R, Runner, Task, W, run_task
from sim.workers.trace_cache import TraceCache


class ThisProcess:
    """A `TaskExecutor` that starts no process: for a few quick tasks."""

    def run(self, tasks: Iterable[Task[W]], runner: Runner[W, R]) -> Outcomes[R]:
        read_trace = TraceCache()
        for task in tasks:
            yield run_task(task, runner, read_trace)
