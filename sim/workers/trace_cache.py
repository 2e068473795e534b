"""Keeps the rows of traces between the points of one worker, so that each file is read once."""

from collections import OrderedDict
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np

from sim.core.errors import InputError
from sim.workload.config import READ_KEYS, TraceConfig
from sim.workload.traces.files import trace_files
from sim.workload.traces.read import TraceReader, read_trace
from sim.workload.traces.rows import TraceRows

_MAX_BYTES = 1 << 30
# About the size of a Python string or small object in a list.
_ITEM_BYTES = 64

# The files and the settings that they are read with. Equal keys have equal rows.
_Key = tuple[object, ...]


class TraceCache:
    """A `TraceReader` that keeps the rows it has read; it drops the least recently used ones first.

    Args:
        max_bytes: about how much is kept; the newest rows are kept whatever their size.
        reader: reads a trace that is not kept.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES, reader: TraceReader = read_trace) -> None:
        self._max_bytes = max_bytes
        self._reader = reader
        self._rows: OrderedDict[_Key, TraceRows] = OrderedDict()
        self.num_read = 0

    def __call__(self, config: TraceConfig, base_dir: Path) -> TraceRows:
        """The rows of the trace; callers must not change them."""
        key = _key(config, base_dir)
        if key not in self._rows:
            self.num_read += 1
            self._rows[key] = self._reader(config, base_dir)
        self._rows.move_to_end(key)
        while len(self._rows) > 1 and self.num_bytes > self._max_bytes:
            self._rows.popitem(last=False)
        return self._rows[key]

    @property
    def num_bytes(self) -> int:
        """About how much memory the kept rows take."""
        return sum(_num_bytes(rows) for rows in self._rows.values())


def _key(config: TraceConfig, base_dir: Path) -> _Key:
    path = base_dir / config.path
    try:
        files = [path, *trace_files(path)] if path.is_dir() else [path]
        states = tuple(map(_state, files))
        if config.tokenizer is not None:
            states += (_state(base_dir / config.tokenizer),)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None
    return (str(path), states, *(getattr(config, key) for key in READ_KEYS))


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _num_bytes(value: object) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if is_dataclass(value):
        return sum(_num_bytes(getattr(value, field.name)) for field in fields(value))
    return _ITEM_BYTES * len(value) if isinstance(value, list | tuple) else 0
