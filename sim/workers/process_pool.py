"""Runs tasks in processes on this machine, which live as long as there are tasks.

On Linux a process without further threads forks its workers: they begin with all that it has loaded
so far, such as modules and databases of step times. Elsewhere, workers start anew and load what
they need. Results do not depend on it.

It does not use `concurrent.futures`: there, one dead worker fails all tasks, and workers outlive a
parent that was killed. Here each worker has its own pipe, and ends when the pipe closes.
"""

import gc
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from types import ModuleType
from typing import Any, Self

from sim.core.files import unlock_folders
from sim.workers.executor import (
    Outcomes,
    R,
    Runner,
    Task,
    TaskOutcome,
    TaskStatus,
    TraceCache,
    W,
    run_task,
)

# A worker has one core: libraries must not start a thread for each core of the machine.
THREAD_SETTINGS = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)
_END_S = 5.0

AnyRunner = Runner[Any, Any]


class ProcessPool:
    """A `TaskExecutor` of processes: `jobs` of them, at least 1; not forked without `forks`.

    Used as a context manager, it keeps the processes, and the traces that they read, from one run
    to the next. All runs must then have the same runner.
    """

    def __init__(self, jobs: int, *, forks: bool = True) -> None:
        self._jobs = jobs
        self._forks = forks
        self._workers: list[_Worker] = []
        self._keeps_workers = False

    def __enter__(self) -> Self:
        self._keeps_workers = True
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end_workers()

    def run(self, tasks: Iterable[Task[W]], runner: Runner[W, R]) -> Outcomes[R]:
        waiting = iter(tasks)
        try:
            for number, task in enumerate(islice(waiting, self._jobs)):
                if number == len(self._workers):
                    self._workers.append(self._start(runner))
                self._living(self._workers[number], runner).give(task)
            while busy := [worker for worker in self._workers if worker.is_busy]:
                ready = wait([worker.pipe for worker in busy])
                for worker in [worker for worker in busy if worker.pipe in ready]:
                    outcome = worker.take()
                    # The worker goes on while the caller handles the outcome.
                    if (next_task := next(waiting, None)) is not None:
                        self._living(worker, runner).give(next_task)
                    yield outcome
        finally:
            is_cut_short = any(worker.is_busy for worker in self._workers)
            if is_cut_short or not self._keeps_workers:
                self._end_workers()

    def _living(self, worker: "_Worker", runner: AnyRunner) -> "_Worker":
        """This worker; if it died, another one in its place."""
        if not worker.lives:
            worker.end()
            place = self._workers.index(worker)
            worker = self._workers[place] = self._start(runner)
        return worker

    def _start(self, runner: AnyRunner) -> "_Worker":
        pipes = [worker.pipe for worker in self._workers if worker.lives]
        forks = self._forks and _may_fork()
        return _Worker.fork(runner, pipes) if forks else _Worker.spawn(runner)

    def _end_workers(self) -> None:
        while self._workers:
            self._workers.pop().end()


@dataclass(slots=True, eq=False)
class _Worker:
    """A process, and this end of its pipe."""

    process: BaseProcess
    pipe: Connection
    key: str = ""
    is_busy: bool = False
    lives: bool = True

    @staticmethod
    def spawn(runner: AnyRunner) -> "_Worker":
        """A worker that starts anew."""
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, runner), daemon=True)
        with _one_thread(), _interrupts_blocked(), _main_hidden():
            process.start()
        # If this process kept the worker's end open, the pipe would not close when the worker dies.
        theirs.close()
        return _Worker(process, ours)

    @staticmethod
    def fork(runner: AnyRunner, pipes: Sequence[Connection]) -> "_Worker":
        """A worker with all that this process has loaded; `pipes` are those of other workers."""
        context = get_context("fork")
        ours, theirs = context.Pipe()
        inherited = [ours, *pipes]
        process = context.Process(target=_forked, args=(theirs, runner, inherited), daemon=True)
        with _one_thread(), _interrupts_blocked(), warnings.catch_warnings():
            # Threads of libraries, which prepare for a fork, count as threads from Python 3.12 on.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        return _Worker(process, ours)

    def give(self, task: Task[Any]) -> None:
        self.key, self.is_busy = task.key, True
        try:
            self.pipe.send(task)
        except OSError:
            # The process has died; `take` reports it.
            return

    def take(self) -> TaskOutcome[Any]:
        """The outcome of the task it was given; a fault if the process died."""
        self.is_busy = False
        try:
            outcome: TaskOutcome[Any] = _receive(self.pipe)
        except (EOFError, OSError):
            self.lives = False
            self.process.join()
            message = f"the worker process ended: {_ending_in_words(self.process.exitcode)}"
            return TaskOutcome(self.key, TaskStatus.FAULT, message=message)
        return outcome

    def end(self) -> None:
        """Stop the process, even in the middle of a task."""
        self.pipe.close()
        if self.is_busy:
            self.process.kill()
        self.process.join(_END_S)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.process.close()


def _may_fork() -> bool:
    """Whether no other thread of this program can hold a lock that a forked process would need."""
    return sys.platform == "linux" and threading.active_count() == 1


def _forked(pipe: Connection, runner: AnyRunner, inherited: Sequence[Connection]) -> None:
    """What a forked worker runs. First it lets go of what is its parent's alone."""
    for each in inherited:
        # Otherwise it would not close for the worker at its other end.
        each.close()
    unlock_folders()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # What was loaded stays: there is no use in looking through it after each task.
    gc.freeze()
    _work(pipe, runner)


def _work(pipe: Connection, runner: AnyRunner) -> None:
    """What a worker process runs: it answers tasks with outcomes until the pipe closes."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    read_trace = TraceCache()
    while True:
        try:
            task: Task[Any] = pipe.recv()
            _send(pipe, run_task(task, runner, read_trace))
        except (EOFError, OSError):
            # The work is over, or the parent was killed.
            return


def _send(pipe: Connection, outcome: TaskOutcome[Any]) -> None:
    """Send an outcome, and its arrays one by one: the log of a run has hundreds of megabytes."""
    arrays: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(outcome, protocol=5, buffer_callback=arrays.append)
    pipe.send(len(arrays))
    pipe.send_bytes(rest)
    for array in arrays:
        pipe.send_bytes(array.raw())


def _receive(pipe: Connection) -> Any:
    num_arrays = pipe.recv()
    rest = pipe.recv_bytes()
    arrays = [pipe.recv_bytes() for _ in range(num_arrays)]
    return pickle.loads(rest, buffers=arrays)  # noqa: S301 - from a process of our own


def _end_with_parent() -> None:
    """End this process when its parent was killed, even in the middle of a task."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _ending_in_words(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    hint = ", perhaps for lack of memory" if name == "SIGKILL" else ""
    return f"{name}{hint}"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started inside use one thread: libraries read these variables when they load."""
    before = {name: os.environ.get(name) for name in THREAD_SETTINGS}
    os.environ.update(THREAD_SETTINGS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Processes started inside do not import the program that starts them.

    Otherwise a script that sweeps would need `if __name__ == "__main__"`, or sweep in every worker.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C; this process gets it and ends them.

    A Ctrl-C during the block is delivered at its end.
    """
    # The first process of a program starts this one, too, which would let interrupts through again.
    ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
