"""Runs commands in a process of its own, with limits on memory and on time without a word."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Self

from fuzz.judge import MAX_BYTES, MAX_SILENCE_S, Ended

_OUT, _ERR = ".stdout", ".stderr"
_LOOK_EVERY_S = 0.1
# Even with progress, the other inputs shall have their turn. And a command that waits for
# something that never comes uses no CPU time.
_MAX_S = 120.0


class Worker:
    """A process that runs commands, one after the other; it is replaced when it is killed."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end()

    def run(self, commands: Sequence[Sequence[str]], folder: Path) -> Ended:
        """Run commands in a folder, up to the first that fails."""
        process, pipe = self._started()
        pipe.send((commands, str(folder)))
        began_s, spoke_s = time.monotonic(), _cpu_s(process.pid)
        said, why = 0, ""
        while not pipe.poll(_LOOK_EVERY_S):
            # CPU time: how fast the machine is otherwise says nothing about the command.
            cpu_s = _cpu_s(process.pid)
            size = _size(folder / _ERR)
            if size != said:
                said, spoke_s = size, cpu_s
            if cpu_s - spoke_s > MAX_SILENCE_S:
                why = f"no word for {MAX_SILENCE_S:.0f} s"
            elif _peak_bytes(process.pid) > MAX_BYTES:
                why = "over 1 GB of memory"
            elif time.monotonic() - began_s > _MAX_S:
                break
            if why or not process.is_alive():
                break
        code: int | None = None
        try:
            if pipe.poll(0):
                code = pipe.recv()
                if _peak_bytes(process.pid) > MAX_BYTES:
                    why = "over 1 GB of memory"
        except EOFError:
            why = f"the process died: {process.exitcode}"
        if code is None:
            self._end()
        ended_well = code is None and not why
        return Ended(0 if ended_well else code, _text(folder / _OUT), _text(folder / _ERR), why)

    def _started(self) -> tuple[SpawnProcess, Connection]:
        if self._process is None or self._pipe is None:
            context = get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_work, args=(theirs,))
            self._process.start()
            theirs.close()
            self._pipe.recv()
        return self._process, self._pipe

    def _end(self) -> None:
        if self._process is not None and self._pipe is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = self._pipe = None


def _work(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from calibrate.cli import main as calibrate
    from sim.cli import main as simulate

    programs = {"simulate": simulate, "calibrate": calibrate}
    pipe.send(None)
    while True:
        try:
            commands, folder = pipe.recv()
        except EOFError:
            return
        pipe.send(run_here(programs, commands, Path(folder)))


def run_here(
    programs: Mapping[str, object], commands: Sequence[Sequence[str]], folder: Path
) -> int:
    """Run commands in this process, with stdout and stderr in files of the folder."""
    os.chdir(folder)
    _forget_peak()
    saved = os.dup(1), os.dup(2)
    code = 0
    with (folder / _OUT).open("wb") as out, (folder / _ERR).open("wb") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            for program, *arguments in commands:
                os.ftruncate(1, 0)
                os.lseek(1, 0, os.SEEK_SET)
                main = programs[program]
                code = main(arguments)  # type: ignore[operator]
                sys.stdout.flush()
                sys.stderr.flush()
                if code:
                    break
        finally:
            os.dup2(saved[0], 1)
            os.dup2(saved[1], 2)
            for each in saved:
                os.close(each)
    return code


def commands_of(text: str, *, no_user_code: bool) -> list[list[str]]:
    """The commands of a case's text, which `&&` may join."""
    commands = [shlex.split(part) for part in text.split("&&")]
    if no_user_code:
        commands = [[*c, "--no-user-code"] if c[1] != "workload" else c for c in commands]
    return commands


def _cpu_s(pid: int | None) -> float:
    """CPU time of a process and of its children that have ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    ticks = map(int, text.rpartition(")")[2].split()[11:15])
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _forget_peak() -> None:
    # Linux: the peak begins anew with the memory of now.
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_bytes(pid: int | None) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="backslashreplace")
    except OSError:
        return ""
