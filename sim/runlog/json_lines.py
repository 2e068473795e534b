"""Files of JSON lines, plain or gzipped: what every log on disk is."""

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from sim.core.errors import InputError
from sim.core.json_object import parse_json_object
from sim.core.packed import GZIP_ERRORS, open_unpacked

Line = dict[str, Any]


def to_json_line(line: Mapping[str, object]) -> str:
    """One object as one line, without spaces."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"


@contextmanager
def open_text(path: Path, *, compressed: bool) -> Iterator[TextIO]:
    """A file to write lines to. Compressed or not, the same lines give the same bytes."""
    with ExitStack() as stack:
        file = stack.enter_context(path.open("wb"))
        if compressed:
            # No name and no time inside.
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            file = cast("io.BufferedWriter", stack.enter_context(packed))
        yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline="\n"))


def numbered_lines(path: Path) -> Iterator[tuple[int, Line]]:
    """Every JSON object of a file with its line number; empty lines are passed over.

    Raises:
        InputError: unreadable or damaged file, or a line that is not a JSON object.
    """
    for number, text in enumerate(_lines(path), start=1):
        if not text.strip():
            continue
        try:
            line = parse_json_object(text)
        except InputError as error:
            raise InputError(f"{path}:{number}: {error.reason}") from None
        yield number, line


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open_unpacked(path) as stream:
            yield from stream
    except GZIP_ERRORS as error:
        raise InputError(f"{path}: damaged gzip file ({error})") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
