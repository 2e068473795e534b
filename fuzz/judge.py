"""Says whether a command ended as it must, whatever its input was."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fuzz.mutate import TRAP

MAX_ERROR, MAX_REMARK = 300, 1_000
MAX_SILENCE_S = 10.0
MAX_BYTES = 1 << 30


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        code: its exit code; None: it was killed.
        out, err: what it printed.
        why_killed: for example for its memory; empty: it was not.
    """

    code: int | None
    out: str
    err: str
    why_killed: str = ""


def faults(ended: Ended, folder: Path, inputs: Mapping[str, bytes]) -> Iterator[str]:
    """Everything that is wrong; `inputs` are the files that it was given, with their content."""
    if ended.why_killed:
        yield ended.why_killed
    elif ended.code not in {0, 1, 2}:
        yield f"exit code {ended.code}"
    for mark in ("Traceback (most recent call last)", "internal error", "Warning:"):
        if mark in ended.err:
            yield mark
    longest = MAX_ERROR if ended.code else MAX_REMARK
    lines = ended.err.splitlines()
    if any(len(line) > longest for line in lines):
        yield f"a line of {max(map(len, lines))} characters on stderr"
    if ended.code == 2 and not lines:
        yield "exit code 2 without a word"
    for name, text in (("stdout", ended.out), ("stderr", ended.err)):
        if not text.replace("\n", "").isprintable():
            yield f"control characters on {name}"
    if (folder / TRAP).exists():
        yield "ran a module"
    for name, content in inputs.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            yield f"changed its input {name}"
    if any(path.name.endswith(".tmp") for path in folder.rglob(".*")):
        yield "left a temporary file"
    if ended.code == 0 and ended.out.startswith("{"):
        yield from _wrong_figures(ended.out)


def _wrong_figures(text: str) -> Iterator[str]:
    """Latencies and rates that cannot be."""
    for key, value in json.loads(text).items():
        is_figure = key.endswith(("_ms", "_throughput", "_pct", "_rps")) and "skew" not in key
        if (
            is_figure
            and isinstance(value, int | float)
            and not (value >= 0 and math.isfinite(value))
        ):
            yield f"a wrong figure: {key} {value}"
