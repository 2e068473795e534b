"""Starts a command in a process of its own, kills it at a moment, and waits for its end."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# For temporary files of the system; beside what the command prints.
TEMPORARY = "tmp"
# `simulate serve` gives answers half a minute after Ctrl-C.
MAX_S = 150.0
_LEFT_S = 20.0
_LOOK_S = 0.05
_ADDRESS = re.compile(r"http://(127\.0\.0\.1:\d+)/v1")


class Killed(NamedTuple):
    """How a command ended.

    Attributes:
        code: its exit code; negative: the signal that ended it; None: it did not end in time.
        out, err: what it printed.
        seconds: how long it ran.
        num_answered: requests that it had answered.
        num_left: processes of its that outlived it.
    """

    code: int | None
    out: str
    err: str
    seconds: float
    num_answered: int
    num_left: int


class Moment(NamedTuple):
    """When a command is killed, in seconds from its start on, and by which signal."""

    after_s: float
    number: signal.Signals


def run_command(
    arguments: Sequence[str], folder: Path, moment: Moment | None = None, num_asked: int = 0
) -> Killed:
    """Run `python -m ARGUMENTS` in a folder; what it prints is written beside the folder."""
    begin_s = time.monotonic()
    with started(arguments, folder) as process:
        asker = _Asker(process, folder, num_asked)
        if num_asked:
            asker.start()
        code = _waited(process, moment)
        seconds = time.monotonic() - begin_s
        asker.gone.set()
        num_left = _num_left(process.pid)
    if num_asked:
        asker.join()
    out, err = (_printed(folder, name) for name in ("out", "err"))
    return Killed(code, out, err, seconds, asker.num_answered, num_left)


@contextmanager
def started(arguments: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs, in a session of its own; what is left of it at the end is killed."""
    (folder.parent / TEMPORARY).mkdir(exist_ok=True)
    env = {
        **os.environ,
        "TMPDIR": str(folder.parent / TEMPORARY),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    out, err = (folder.parent / name for name in ("out", "err"))
    with out.open("wb") as stdout, err.open("wb") as stderr, taken_interrupts():
        process = subprocess.Popen(  # noqa: S603 - our own commands
            [sys.executable, "-m", *arguments],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def taken_interrupts() -> Iterator[None]:
    """Processes started inside take Ctrl-C, even if a script started this one with `&`."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def address_of(folder: Path, gone: Event) -> str | None:
    """Host and port at which the command in a folder serves; None: it ended before."""
    while not (found := _ADDRESS.search(_printed(folder, "out"))):
        if gone.wait(_LOOK_S):
            return None
    return found[1]


def _waited(process: subprocess.Popen[bytes], moment: Moment | None) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        if moment is None:
            return process.wait(MAX_S)
        try:
            return process.wait(moment.after_s)
        except subprocess.TimeoutExpired:
            _send(process, moment.number)
            return process.wait(MAX_S)
    return None


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if number is signal.SIGINT:
        # A terminal sends Ctrl-C to the workers, too. The process is not waited for yet, so its
        # number is still its own.
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)


def _num_left(session: int) -> int:
    """Processes of a session that still run; they get a while to see that the first one is gone."""
    end_s = time.monotonic() + _LEFT_S
    while (num := sum(_runs_in(session, stat) for stat in Path("/proc").glob("[0-9]*/stat"))) > 0:
        if time.monotonic() > end_s:
            break
        time.sleep(_LOOK_S)
    return num


def _runs_in(session: int, stat: Path) -> bool:
    try:
        state, _parent, _group, its = stat.read_text().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return False
    return int(its) == session and state not in "ZX"


def _printed(folder: Path, name: str) -> str:
    return (folder.parent / name).read_text(encoding="utf-8", errors="backslashreplace")


class _Asker(Thread):
    """Sends requests to `simulate serve`, one after the other, then Ctrl-C."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, num: int) -> None:
        super().__init__(daemon=True)
        self.num_answered = 0
        self.gone = Event()
        self._process, self._folder, self._num = process, folder, num

    def run(self) -> None:
        address = address_of(self._folder, self.gone)
        if address is None:
            return
        with suppress(OSError, http.client.HTTPException):
            for number in range(self._num):
                self._ask(address, f"{number} is a prompt " * 20)
            if self.num_answered == self._num:
                self._process.send_signal(signal.SIGINT)

    def _ask(self, address: str, prompt: str) -> None:
        connection = http.client.HTTPConnection(address, timeout=MAX_S)
        body = {"model": "base", "prompt": prompt, "max_tokens": 20, "ignore_eos": True}
        headers = {"Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            self.num_answered += connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()
