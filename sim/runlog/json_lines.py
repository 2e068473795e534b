"""Files of JSON lines, plain or gzipped: what every log on disk is."""

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from sim.core.errors import InputError

Line = dict[str, Any]

_GZIP_MAGIC = b"\x1f\x8b"


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
