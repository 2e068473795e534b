"""Says whether a command ended as it must, whatever its input was."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fuzz.mutate import TRAP

MAX_ERROR, MAX_REMARK = 300, 1_000
MAX_SILENCE_S = 10.0
MAX_BYTES = 1 << 30
_DEFECTS = ("Traceback (most recent call last)", "internal error", "Warning:")
# A comparison may find that things differ; a sweep, a search or a plan may have a point that fails.
_COMPARE = (["compare"], ["validate"], ["sweep"], ["tune"], ["plan"], ["check"], ["suite"])
_PROGRESS = re.compile(r"[\d,]+/[\d,]+ ")
_NAMES = ("simulate: ", "calibrate: ", "realrun: ")
_FIGURES = ("_ms", "_throughput", "_pct", "_rps")


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        code: its exit code; None: it was killed.
        out, err: what it printed.
        why_killed: for example for its memory; empty: it was not.
        peak_bytes: most memory that its process had; 0: not known.
    """

    code: int | None
    out: str
    err: str
    why_killed: str = ""
    peak_bytes: int = 0


def remarks(err: str) -> str:
    """What was printed on stderr but for how far it is, which depends on the machine."""
    return "".join(line for line in err.splitlines(True) if _PROGRESS.match(line) is None)


def faults(
    ended: Ended, commands: Sequence[Sequence[str]], folder: Path, inputs: Mapping[str, bytes]
) -> list[str]:
    """Everything that is wrong; `inputs` are the files that it was given, with their content."""
    return [
        *_of_ending(ended, [_called(words, folder) for words in commands]),
        *_of_words(ended),
        *_of_files(folder, inputs),
        *_of_figures(ended),
    ]


def _of_ending(ended: Ended, commands: Sequence[Sequence[str]]) -> Iterator[str]:
    if ended.why_killed:
        yield ended.why_killed
    elif ended.code not in {0, 2} and not (ended.code == 1 and _may_fail(commands)):
        yield f"exit code {ended.code}"
    elif ended.code == 2 and not ended.err:
        yield "exit code 2 without a word"
    elif ended.code == 2 and commands[0][0] != "playground" and not _says_why(ended.err):
        yield "exit code 2, and the last line on stderr does not say why"
    yield from (mark for mark in _DEFECTS if mark in ended.err)


def _called(words: Sequence[str], folder: Path) -> Sequence[str]:
    """The command itself, of one that a file has, or that runs within limits."""
    if words[0] == "called":
        called: list[str] = json.loads((folder / words[1]).read_text(encoding="utf-8"))
        return called
    return words[2:] if words[0] in {"limited", "against"} else words


def _says_why(err: str) -> bool:
    """Whether the last line is that of a command; remarks may come before it."""
    return err.splitlines()[-1].startswith(_NAMES)


def _may_fail(commands: Sequence[Sequence[str]]) -> bool:
    """Whether one of the commands compares, and ends with exit code 1 if something differs."""
    return any(words[1:2] in _COMPARE for words in commands)


def _of_words(ended: Ended) -> Iterator[str]:
    longest = max(map(len, ended.err.splitlines()), default=0)
    if longest > (MAX_ERROR if ended.code else MAX_REMARK):
        yield f"a line of {longest} characters on stderr"
    for name, text in (("stdout", ended.out), ("stderr", ended.err)):
        if not text.replace("\n", "").isprintable():
            yield f"control characters on {name}"


def _of_files(folder: Path, inputs: Mapping[str, bytes]) -> Iterator[str]:
    if (folder / TRAP).exists():
        yield "ran a module"
    for name, content in inputs.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            yield f"changed its input {name}"
    if any(path.name.endswith(".tmp") for path in folder.rglob(".*")):
        yield "left a temporary file"


def _of_figures(ended: Ended) -> Iterator[str]:
    """Latencies and rates that cannot be."""
    if ended.code != 0 or not ended.out.startswith("{"):
        return
    for key, value in json.loads(ended.out).items():
        is_figure = key.endswith(_FIGURES) and isinstance(value, int | float)
        if is_figure and not (value >= 0 and math.isfinite(value)):
            yield f"a wrong figure: {key} {value}"
