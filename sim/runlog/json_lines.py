"""Reads and writes files of JSON lines, plain or gzipped. All logs on disk have this form."""

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from sim.core.errors import InputError
from sim.core.files import atomic_path
from sim.core.packed import parse_json_object, read_lines

Line = dict[str, Any]


def to_json_line(line: Mapping[str, object]) -> str:
    """One object as one line, without spaces."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a file to write lines to; it is there when the block succeeds.

    It is compressed if the name ends in `.gz`. The same lines always give the same bytes.
    """
    with atomic_path(path) as beside, ExitStack() as stack:
        file = stack.enter_context(beside.open("wb"))
        if path.suffix == ".gz":
            # The gzip header gets no file name and no time, which would differ from run to run.
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            file = cast("io.BufferedWriter", stack.enter_context(packed))
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))


def numbered_lines(path: Path) -> Iterator[tuple[int, Line]]:
    """Every JSON object of a file, with its line number; empty lines are skipped."""
    for number, text in enumerate(read_lines(path), start=1):
        if not text.strip():
            continue
        try:
            line = parse_json_object(text)
        except InputError as error:
            raise InputError(f"{path}:{number}: {error.reason}") from None
        yield number, line
