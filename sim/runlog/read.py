"""Reads a decision log back: JSON lines, plain or gzipped."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sim.core.errors import InputError

Line = dict[str, Any]

_GZIP_MAGIC = b"\x1f\x8b"
# What a step and a request of our own logs always have.
_STEP_KEYS = ("replica", "t_decided_ns", "t_start_ns", "t_end_ns", "mode", "prefill", "ratio")
_REQUEST_KEYS = ("rid", "replica", "arrival_ns", "status")


def read_decisions(path: Path) -> tuple[list[Line], list[Line]]:
    """Steps and requests of a decision log, each in the file's order.

    Raises:
        InputError: unreadable, not JSON, or a line without the keys of docs/decision-log.md.
    """
    steps: list[Line] = []
    requests: list[Line] = []
    for number, line in numbered_lines(path):
        kind = line.get("kind")
        keys = {"step": _STEP_KEYS, "req": _REQUEST_KEYS}.get(str(kind))
        if keys is None:
            raise InputError(f"{path}:{number}: kind: must be step or req, got {kind!r}")
        for key in keys:
            if key not in line:
                raise InputError(f"{path}:{number}: {key}: missing")
        (steps if kind == "step" else requests).append(line)
    if not steps:
        raise InputError(f'{path}: no line with "kind": "step"')
    return steps, requests


def numbered_lines(path: Path) -> Iterator[tuple[int, Line]]:
    """Every JSON object of a file with its line number; empty lines are passed over.

    Raises:
        InputError: unreadable or damaged file, or a line that is not a JSON object.
    """
    for number, text in enumerate(_lines(path), start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(f"{path}:{number}: not JSON") from None
        if not isinstance(line, dict):
            raise InputError(f"{path}:{number}: not a JSON object")
        yield number, line


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as raw:
            zipped = raw.peek(2)[:2] == _GZIP_MAGIC
            yield from gzip.GzipFile(fileobj=raw) if zipped else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip file ({error})") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
