"""Keeps results from overwriting what a command has read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from sim.core.errors import InputError

# Device and inode of the files that the command has read; None outside of commands.
_inputs: ContextVar[set[tuple[int, int]] | None] = ContextVar("inputs", default=None)


@contextmanager
def inputs_kept() -> Iterator[None]:
    """Inside, files that were read cannot be written or removed.

    For command lines. A notebook may read a result and then write it anew.
    """
    token = _inputs.set(set())
    try:
        yield
    finally:
        _inputs.reset(token)


def note_input(path: Path, file: int | None = None) -> None:
    """Note that a file is read; `file` is its descriptor, if it is open."""
    if (inputs := _inputs.get()) is None:
        return
    try:
        status = path.stat() if file is None else os.fstat(file)
    except (OSError, ValueError):
        return
    inputs.add((status.st_dev, status.st_ino))


def refuse_input(path: Path) -> None:
    """Raise InputError if a file is about to be written or removed that was read."""
    inputs = _inputs.get()
    if not inputs:
        return
    try:
        status = path.stat()
    except (OSError, ValueError):
        return
    if (status.st_dev, status.st_ino) in inputs:
        raise InputError(f"{path}: is read by this command: write to another place")
