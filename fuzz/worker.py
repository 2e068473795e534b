"""Runs commands in a process of its own, with limits on memory and on time without a word."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Lock
from typing import Self

from fuzz.judge import MAX_BYTES, MAX_SILENCE_S, Ended

Programs = Mapping[str, Callable[[Sequence[str]], int]]

_OUT, _ERR = ".stdout", ".stderr"
_LOOK_EVERY_S = 0.1
# Even with progress, the other inputs shall have their turn. And a command that waits for
# something that never comes uses no CPU time.
_MAX_S = 120.0


class Worker:
    """A process that runs commands, one after the other; it is replaced when it is killed."""

    def __init__(self, hash_seed: int = 0) -> None:
        """`hash_seed` decides how texts are hashed in the process."""
        self._hash_seed = str(hash_seed)
        self._peak_bytes = 0
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
        why, is_over = self._watch(process, pipe, folder / _ERR)
        code: int | None = None
        try:
            if not why and pipe.poll(0):
                code = pipe.recv()
        except EOFError:
            process.join()
            why = f"the process died: {process.exitcode}"
        if code is None:
            self._end()
        out, err = _text(folder / _OUT), _text(folder / _ERR)
        # With progress to the last, it may take longer than there is time.
        return Ended(0, "", err) if is_over else Ended(code, out, err, why, self._peak_bytes)

    def _watch(self, process: SpawnProcess, pipe: Connection, err: Path) -> tuple[str, bool]:
        """Wait for a command's end; returns why it must be killed, or whether its time is over."""
        began_s, spoke_s, said = time.monotonic(), _cpu_s(process.pid), 0
        while not (is_done := pipe.poll(_LOOK_EVERY_S)) and process.is_alive():
            # CPU time: how fast the machine is otherwise says nothing about the command.
            cpu_s, size = _cpu_s(process.pid), _size(err)
            if size != said:
                said, spoke_s = size, cpu_s
            if cpu_s - spoke_s > MAX_SILENCE_S:
                return f"no word for {MAX_SILENCE_S:.0f} s", False
            if _peak_bytes(process.pid) > MAX_BYTES:
                break
            if time.monotonic() - began_s > _MAX_S:
                return "", True
        self._peak_bytes = _peak_bytes(process.pid)
        if self._peak_bytes > MAX_BYTES:
            return f"over 1 GB of memory{'' if is_done else ', and more to come'}", False
        return "", False

    def _started(self) -> tuple[SpawnProcess, Connection]:
        if self._process is None or self._pipe is None:
            context = get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_work, args=(theirs,))
            with _hashing(self._hash_seed):
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


_starting = Lock()


@contextmanager
def _hashing(seed: str) -> Iterator[None]:
    """Processes that are started inside hash texts with this seed."""
    name = "PYTHONHASHSEED"
    with _starting:
        before = os.environ.get(name)
        os.environ[name] = seed
        try:
            yield
        finally:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before


def _work(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from fuzz.programs import PROGRAMS

    pipe.send(None)
    while True:
        try:
            commands, folder = pipe.recv()
        except EOFError:
            return
        pipe.send(_run_here(PROGRAMS, commands, Path(folder)))


def _run_here(programs: Programs, commands: Sequence[Sequence[str]], folder: Path) -> int:
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
                code = programs[program](arguments)
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
