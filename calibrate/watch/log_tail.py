"""Follows a server's own log while it grows: its version, its settings and its KV pool."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from calibrate.watch.changes import differences
from sim.core.errors import InputError
from sim.families import FAMILIES

# Of a long log, this much is read at a time; of a line without an end, no more is kept.
_PART_BYTES = 1 << 22
_GZIP_MAGIC = b"\x1f\x8b"


class _Said(NamedTuple):
    """What the log says of the server."""

    version: str
    flags: dict[str, object]
    pool_tokens: int | None


class LogTail:
    """Reads what a log has got since it was read last, in memory that does not grow."""

    def __init__(self, path: Path, family: str) -> None:
        """Follow the log of a server of this family from its beginning.

        Raises:
            InputError: the log cannot be read, or such servers write none that is known.
        """
        reader = FAMILIES[family].engine_log() if family in FAMILIES else None
        if reader is None:
            raise InputError(f"{path}: logs of family {family} are not known")
        self._path, self._reader = path, reader
        self._num_bytes = self._num_lines = 0
        self._rest = b""
        self._read()
        self._said, self._num_starts = self._now(), reader.num_starts

    def changes(self) -> Iterator[str]:
        """What is different about the server since the log was read last."""
        self._read()
        said, num_starts = self._now(), self._reader.num_starts
        if num_starts > self._num_starts and self._num_starts:
            yield "the server was started anew, by its log"
        # A server that starts writes its settings one after another.
        if said.version and said.version != self._said.version and self._said.version:
            yield f"version {self._said.version} → {said.version}"
        if self._said.flags and said.flags != self._said.flags:
            changed = differences(self._said.flags, said.flags, "default")
            yield f"settings changed: {changed}"
        pools = self._said.pool_tokens, said.pool_tokens
        if pools[0] and pools[1] and pools[0] != pools[1]:
            yield f"KV pool {pools[0]:,} → {pools[1]:,} tokens"
        self._said = _Said(
            said.version or self._said.version,
            said.flags or self._said.flags,
            said.pool_tokens if said.pool_tokens is not None else self._said.pool_tokens,
        )
        self._num_starts = num_starts

    def _now(self) -> _Said:
        server = self._reader.server
        return _Said(server.version, dict(server.flags), server.kv_pool.num_tokens)

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, io.SEEK_END)
                if size < self._num_bytes:
                    # Another file has its name now, or it was emptied.
                    self._num_bytes, self._rest = 0, b""
                file.seek(self._num_bytes)
                if not self._num_bytes and file.peek(2)[:2] == _GZIP_MAGIC:
                    raise InputError(f"{self._path}: is packed, so it does not grow")
                while part := file.read(_PART_BYTES):
                    self._num_bytes += len(part)
                    self._take(part)
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read: {error.strerror}") from None

    def _take(self, part: bytes) -> None:
        *lines, self._rest = (self._rest + part).split(b"\n")
        # An endless line is none of a log.
        self._rest = self._rest[-_PART_BYTES:]
        for line in lines:
            self._num_lines += 1
            self._reader.read(self._num_lines, line)
