"""Measures a command's wall time and peak memory, on one core."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.core.errors import InputError

_LAST_CHARACTERS = 600


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process used.

    Attributes:
        wall_s: wall time from start to end.
        cpu_s: processor time of all its threads and children.
        peak_mib: peak resident memory.
    """

    wall_s: float
    cpu_s: float
    peak_mib: float


def use_one_core() -> None:
    """Bind this process and its children to its last core, because the first handles interrupts."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def measure(
    command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> Usage:
    """Run a command to its end; its stdout goes to `log`, its stderr to `*.err` beside it.

    Args:
        command: the program and its arguments.
        log: file for its stdout.
        environment: its environment variables; None: those of this process.

    The peak memory includes what the calling process had when it started the command, so callers
    must be small.

    Raises:
        InputError: the command cannot be run, or fails.
    """
    error_file = log.with_suffix(".err")
    with log.open("wb") as output, error_file.open("wb") as errors:
        begin_s = time.perf_counter()
        try:
            process = subprocess.Popen(  # noqa: S603
                command, stdout=output, stderr=errors, env=environment
            )
        except OSError as error:
            raise InputError(f"{command[0]}: cannot be run: {error.strerror}") from error
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - begin_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        last = error_file.read_text(encoding="utf-8", errors="replace")[-_LAST_CHARACTERS:]
        raise InputError(f"{' '.join(command)}: exit code {process.returncode}\n{last}")
    return Usage(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
