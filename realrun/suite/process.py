"""Runs one stage in a separate process, so that its failures and its memory end with it."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, NamedTuple

from realrun.suite import UNFINISHED
from realrun.suite.stages import Stage

# A command's budget does not include the time to write the results and to free memory at the end.
_ENDING_S = 8.0
# How long an interrupted process may take to keep what it has.
_KILL_AFTER_S = 5.0
_LINES_KEPT = 20

_forks = multiprocessing.get_context("forkserver")


class StageOutcome(NamedTuple):
    """How a stage's process ended.

    Attributes:
        code: its exit code; if negative, the signal that ended it.
        timed_out: whether it was interrupted, because its time limit was near.
        seconds: how long it ran.
        printed: the last lines of its stdout; if it failed, also those of its stderr.
    """

    code: int
    timed_out: bool
    seconds: float
    printed: list[str]


def preload(modules: Sequence[str]) -> None:
    """Import modules once, in a process from which each stage is forked.

    On a machine that has just started, the imports take 20 s. None of the modules may use a GPU
    when it is imported: a forked process could not use it any more.
    """
    _forks.set_forkserver_preload(list(modules))


def arguments_of(stage: Stage, folder: Path, device: str, limit_s: float) -> list[str]:
    """The arguments of `realrun` for a stage that must end within `limit_s` seconds."""
    command = [*stage.arguments, "--device", device]
    if stage.file is not None:
        budget_s = max(limit_s - _ENDING_S, 0.0)
        command += ["--out", str(folder / stage.file), "--budget-s", f"{budget_s:.0f}"]
    return command


def run_process(
    main: Callable[[Sequence[str]], int | None], arguments: Sequence[str], limit_s: float
) -> StageOutcome:
    """Call `main(arguments)` in a new process.

    The process is interrupted shortly before its time limit, and killed at the limit.

    Args:
        main: a function that a new process can import; its result is the exit code (None: 0).
        arguments: what it is called with.
        limit_s: the time limit.
    """
    begin_s = time.monotonic()
    with NamedTemporaryFile() as results, NamedTemporaryFile() as errors:
        process = _forks.Process(
            target=_run_stage, args=(main, arguments, results.name, errors.name)
        )
        process.start()
        try:
            timed_out = not _ends_within(process, limit_s - _KILL_AFTER_S)
        finally:
            # After Ctrl-C in the suite, the terminal has interrupted the process too: let it end.
            if process.is_alive():
                os.kill(process.pid or 0, signal.SIGINT)
                if not _ends_within(process, _KILL_AFTER_S):
                    process.kill()
                    process.join()
        printed = _last_lines(results)
        code = process.exitcode if process.exitcode is not None else -signal.SIGKILL
        if code not in {0, UNFINISHED}:
            printed += _last_lines(errors)
    return StageOutcome(code, timed_out, time.monotonic() - begin_s, printed)


def _run_stage(
    main: Callable[[Sequence[str]], int | None], arguments: Sequence[str], results: str, errors: str
) -> None:
    """Call `main` in this process, with stdout and stderr in files, and exit with its result."""
    for path, descriptor in ((results, 1), (errors, 2)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    sys.exit(main(arguments))


def _last_lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    lines = file.read().decode(errors="replace").splitlines()
    return [line.rstrip() for line in lines[-_LINES_KEPT:]]


def _ends_within(process: ForkServerProcess, seconds: float) -> bool:
    process.join(max(seconds, 0.0))
    return not process.is_alive()
