"""Files that may be gzip-compressed, whatever their name says."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

_GZIP_MAGIC = b"\x1f\x8b"
# What reading a cut-off or damaged gzip file raises.
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read; content that begins with gzip's magic bytes is decompressed.

    Raises:
        OSError, ValueError: it cannot be opened or read.
    """
    with path.open("rb") as raw:
        is_packed = raw.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
        yield cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if is_packed else raw
