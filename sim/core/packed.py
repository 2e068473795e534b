"""Reads files of others: plain or gzip-compressed whatever their name says, and of any size.

A file may be a pipe, so it is opened once; the path `-` is standard input. A line, or a file that
is read whole, may be too large for memory, and a gzip file of a megabyte may unpack to a gigabyte;
both are refused, and so are JSON objects that are nested too deep.

Files of JSON lines, plain or gzipped, are read and written here. All logs on disk have this form.
"""

import gzip
import io
import json
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO, cast

from sim.core.errors import InputError
from sim.core.files import atomic_path, note_input

STDIN = Path("-")


def open_file(path: Path) -> io.BufferedReader:
    """Open a file to read. `-` is standard input, which can be opened several times.

    Raises OSError, ValueError: it cannot be opened.
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


MAX_LINE_BYTES = 1 << 27
# What is read whole: documents, tables, dumps.
MAX_FILE_BYTES = 1 << 28
# Logs and traces shrink to a tenth or a fiftieth; the limit of gzip is a thousandth.
_MAX_RATIO = 250
# Smaller content is not refused for its ratio.
_CHECKED_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


class _Counted:
    """A file of which `num_bytes` were read; gzip reads through it."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.num_bytes = 0

    def read(self, size: int = -1) -> bytes:
        content = self._raw.read(size)
        self.num_bytes += len(content)
        return content


class Unpacked:
    """The content of a file, unpacked if it begins with gzip's magic bytes."""

    def __init__(self, raw: BinaryIO, begin: bytes, path: Path) -> None:
        """Take an open file and its first bytes, which are not skipped."""
        self._path = path
        self._counted = _Counted(raw)
        self._stream = raw
        self._is_packed = begin.startswith(_GZIP_MAGIC)
        if self._is_packed:
            packed = cast("BinaryIO", self._counted)
            self._stream = cast("BinaryIO", gzip.GzipFile(fileobj=packed, mode="rb"))
        self._num_bytes = 0

    def lines(self) -> Iterator[bytes]:
        """Yield every line with its end. Raises InputError, see `read_lines`."""
        number = 0
        while line := self._next(self._stream.readline, MAX_LINE_BYTES + 1, number):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                reason = f"is longer than {MAX_LINE_BYTES >> 20} MiB: not a line of text"
                raise InputError(f"{self._path}:{number}: {reason}")
            yield line

    def content(self, max_bytes: int) -> bytes:
        """All bytes. Raises InputError, see `read_file`."""
        parts: list[bytes] = []
        for part in self.parts():
            parts.append(part)
            if self._num_bytes > max_bytes:
                raise InputError(f"{self._path}: is larger than {max_bytes:,} bytes")
        return b"".join(parts)

    def parts(self) -> Iterator[bytes]:
        """Yield the content in parts of at most a megabyte. Raises InputError, see `read_lines`."""
        while part := self._next(self._stream.read, _CHUNK_BYTES, None):
            yield part

    def _next(self, read: Callable[[int], bytes], size: int, number: int | None) -> bytes:
        """The next line or bytes; `number` is that of the last line that was read."""
        try:
            part = read(size)
        except _GZIP_ERRORS:
            where = self._path if number is None else f"{self._path}:{number + 1}"
            raise InputError(f"{where}: gzip data are cut off or corrupt") from None
        except (OSError, ValueError) as error:
            where = f"{self._path}:{number + 1}" if number else self._path
            raise _unreadable(where, error) from None
        self._num_bytes += len(part)
        if self._is_packed and self._num_bytes > max(
            _CHECKED_BYTES, _MAX_RATIO * self._counted.num_bytes
        ):
            raise InputError(
                f"{self._path}: gzip data unpack to over {_MAX_RATIO} times their size"
            )
        return part


@contextmanager
def open_unpacked(path: Path, *, is_input: bool = True) -> Iterator[Unpacked]:
    """Open a file to read; an input cannot be written by the same command."""
    try:
        raw = open_file(path)
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not a file") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    with raw:
        if is_input:
            note_input(path, raw.fileno())
        try:
            begin = raw.peek(len(_GZIP_MAGIC))
        except OSError as error:
            raise _unreadable(path, error) from None
        yield Unpacked(raw, begin, path)


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield every line of a file with its end; errors are `path:LINE: reason`."""
    with open_unpacked(path) as unpacked:
        yield from unpacked.lines()


def read_file(path: Path, max_bytes: int = MAX_FILE_BYTES, *, is_input: bool = True) -> bytes:
    with open_unpacked(path, is_input=is_input) as unpacked:
        return unpacked.content(max_bytes)


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES, *, is_input: bool = True) -> str:
    """The whole text of a file in UTF-8, with or without a byte order mark."""
    content = read_file(path, max_bytes, is_input=is_input)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: byte {error.start + 1} is not UTF-8") from None


def _unreadable(where: Path | str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(f"{where}: cannot be read: {reason}")


# No file that the project reads is nested half as deep.
MAX_NESTED = 50


def parse_json_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object of a text; the caller adds to an error where the text is from."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("not JSON") from None
    return _checked_object(data)


def read_json_object(path: Path, *, is_input: bool = True) -> dict[str, Any]:
    """Read a file of one JSON object; errors are `path:LINE: reason`, or `path: reason`.

    The command that reads it must not write it, unless `is_input` is false.
    """
    text = read_text(path, is_input=is_input)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not JSON") from None
    return _checked_object(data, f"{path}: ")


def _checked_object(data: object, where: str = "") -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(f"{where}not a JSON object")
    if is_nested_deeper(data, MAX_NESTED):
        raise InputError(f"{where}lists and mappings are nested over {MAX_NESTED} deep")
    return data


def is_nested_deeper(data: dict[str, Any], limit: int) -> bool:
    """Whether lists and mappings are nested deeper; code that follows them down would fail."""
    level: list[Any] = [data]
    for _ in range(limit):
        level = [
            item
            for each in level
            for item in (each.values() if isinstance(each, dict) else each)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


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
