"""Standard input as a file: the path `-`."""

import io
import shutil
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, cast

STDIN = Path("-")


def open_file(path: Path) -> io.BufferedReader:
    """Open a file to read. `-` is standard input, which can be opened several times.

    Raises:
        OSError, ValueError: it cannot be opened.
    """
    if path != STDIN:
        return path.open("rb")
    return Path(_copy_of(sys.stdin).name).open("rb")


def name_of(path: Path) -> str:
    """The file's name without its ending, to name results after it."""
    return "stdin" if path == STDIN else path.stem


@lru_cache(maxsize=1)
def _copy_of(stream: Any) -> IO[bytes]:
    """A temporary file with all of a stream; it is removed when the program ends."""
    copy = tempfile.NamedTemporaryFile(prefix="servetwin-stdin-")  # noqa: SIM115 - kept open
    shutil.copyfileobj(stream.buffer, copy)
    copy.flush()
    return cast("IO[bytes]", copy)
