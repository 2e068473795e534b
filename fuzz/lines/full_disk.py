"""Commands whose disk is full: a file that they write can have no more than some bytes."""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from threading import Thread

from fuzz.cases import FuzzCase
from fuzz.kills.whole import is_temporary, why_broken

LIMIT = "limit.json"
_COMMANDS = (
    "simulate run base.yaml --out out --decisions d.jsonl --requests r.csv --perfetto p.json",
    "simulate run vllm.yaml --decisions d.jsonl.gz --requests r.parquet --timeline t.html",
    "simulate run mix.yaml --out run",
    "simulate import sglang.json --out imported",
    "simulate import vllm.json --out imported --template base.yaml",
    "simulate timeline decisions.jsonl --out t.html --perfetto t.json",
    "simulate report run --out report",
    "simulate report sweep --out report",
    "simulate sweep sweep.yaml --out s --jobs 1",
    "simulate sweep sweep.yaml --out sweep --jobs 1 --fresh",
    "simulate tune tune.yaml --out t --jobs 1",
    "simulate workload base.yaml --format json",
    "calibrate fit run.jsonl -o fitted.json",
    "calibrate fit measured.jsonl --scenario serial.yaml -o fitted.json",
    "calibrate validate base.yaml measured.jsonl --out v",
    "calibrate validate example/tiny-cpu run.jsonl --any-fingerprint --out v",
    "realrun run served.yaml --device cpu --log log.jsonl.gz",
)
# They take a second or more.
_SLOW = ("report", "tune", "realrun", "calibrate validate", "fit run")

_END = b"\0\0end\0"

Program = Callable[[Sequence[str]], int]


def limited(programs: Mapping[str, Program]) -> Program:
    """A program that runs a command with the limit in a file: `LIMIT COMMAND...`."""

    def run(arguments: Sequence[str]) -> int:
        name, program, *words = arguments
        most = int(json.loads(Path(name).read_text(encoding="utf-8")))
        before = _stamps()
        with _printed_to_pipes(), _limit(most):
            code = programs[program](words)
        for path, stamp in _stamps().items():
            if before.get(path) == stamp or is_temporary(path) or path == name:
                continue
            if why := why_broken(Path(path)):
                sys.stderr.write(f"internal error: {path} is not whole: {why}\n")
        return code

    return run


def _stamps() -> dict[str, tuple[int, int]]:
    """What is in the folder, and what says that it was written."""
    paths = (path for path in Path().rglob("*") if path.is_file() and path.name[:4] != ".std")
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in paths}


@contextmanager
def _limit(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def _printed_to_pipes() -> Iterator[None]:
    """What is printed inside comes after it: the files that it goes to have the limit, too."""
    streams = {1: sys.stdout, 2: sys.stderr}
    printed = {number: bytearray() for number in streams}
    with ExitStack() as opened:
        for number, kept in printed.items():
            opened.enter_context(_piped(number, kept))
        out, err = (opened.enter_context(os.fdopen(os.dup(number), "w")) for number in streams)
        with redirect_stdout(out), redirect_stderr(err):
            yield
    for number, stream in streams.items():
        stream.write(printed[number].decode(errors="backslashreplace"))


@contextmanager
def _piped(number: int, kept: bytearray) -> Iterator[None]:
    """What goes to the descriptor of this number is kept."""
    out, into = os.pipe()
    saved = os.dup(number)
    os.dup2(into, number)
    thread = Thread(target=_drain, args=(out, kept), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(saved, number)
        os.close(saved)
        # A process that was started inside may keep the pipe open.
        os.write(into, _END)
        os.close(into)
        thread.join()
        del kept[-len(_END) :]


def _drain(pipe: int, kept: bytearray) -> None:
    with os.fdopen(pipe, "rb") as file:
        while not kept.endswith(_END) and (part := file.read1()):
            kept += part


def drawn_limit(_old: bytes, rng: Random) -> bytes:
    """A number of bytes: most files of these commands have 100 to 100,000."""
    size = rng.choice((0, 1, 4_096, rng.randrange(300), int(10 ** rng.uniform(2, 5.3))))
    return json.dumps(size).encode()


def disk_cases() -> list[FuzzCase]:
    quick = [each for each in _COMMANDS if not any(word in each for word in _SLOW)]
    slow = [each for each in _COMMANDS if each not in quick]
    return [
        FuzzCase(
            f"full disk {name}",
            LIMIT,
            drawn_limit,
            tuple(f"limited {LIMIT} {command}" for command in commands),
            weight,
            group="full disks",
            bytes_share=0,
        )
        for name, commands, weight in (("quick", quick, 5), ("slow", slow, 1))
    ]
