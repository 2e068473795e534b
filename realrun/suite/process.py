"""Runs one stage in a separate process, so that its failures and its memory end with it."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from realrun.suite import UNFINISHED
from realrun.suite.stages import Stage

# A command's budget does not include the start of Python, nor the time to write the results and to
# free memory at the end. This is the time for all of these.
_ENDING_S = 15.0
_KILL_AFTER_S = 5.0
_LINES_KEPT = 20


class StageOutcome(NamedTuple):
    """How a stage's process ended.

    Attributes:
        code: its exit code; if negative, the signal that ended it.
        timed_out: whether it was stopped at its time limit.
        seconds: how long it ran.
        printed: the last lines of its stdout; if it failed, also those of its stderr.
    """

    code: int
    timed_out: bool
    seconds: float
    printed: list[str]


def command_of(stage: Stage, folder: Path, device: str, limit_s: float) -> list[str]:
    """The command line of a stage that must end within `limit_s` seconds."""
    command = [sys.executable, "-m", "realrun", *stage.arguments, "--device", device]
    if stage.file is not None:
        budget_s = max(limit_s - _ENDING_S, 0.0)
        command += ["--out", str(folder / stage.file), "--budget-s", f"{budget_s:.0f}"]
    return command


def run_process(command: Sequence[str], limit_s: float) -> StageOutcome:
    """Run a command. Interrupt it shortly before its time limit, and kill it at the limit."""
    begin_s = time.monotonic()
    with TemporaryFile() as results, TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=results, stderr=errors)  # noqa: S603 - our own command
        try:
            timed_out = not _ends_within(process, limit_s - _KILL_AFTER_S)
        finally:
            # After Ctrl-C in the suite, the terminal has interrupted the process too: let it end.
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                if not _ends_within(process, _KILL_AFTER_S):
                    process.kill()
                    process.wait()
        printed = _last_lines(results)
        if process.returncode not in {0, UNFINISHED}:
            printed += _last_lines(errors)
    return StageOutcome(process.returncode, timed_out, time.monotonic() - begin_s, printed)


def _last_lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    lines = file.read().decode(errors="replace").splitlines()
    return [line.rstrip() for line in lines[-_LINES_KEPT:]]


def _ends_within(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(max(seconds, 0.0))
    except subprocess.TimeoutExpired:
        return False
    return True
