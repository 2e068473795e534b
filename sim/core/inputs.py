"""Keeps results from overwriting what a command has read, or what another command writes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from sim.core.errors import InputError

# Descriptors of the folders that the command writes to; None outside of commands.
_folders: ContextVar[list[int] | None] = ContextVar("folders", default=None)
# Device and inode of the files that the command has read; None outside of commands.
_inputs: ContextVar[set[tuple[int, int]] | None] = ContextVar("inputs", default=None)


@contextmanager
def inputs_kept() -> Iterator[None]:
    """Inside, files that were read cannot be written or removed.

    For command lines. A notebook may read a result and then write it anew.
    """
    token, locked = _inputs.set(set()), _folders.set([])
    try:
        yield
    finally:
        for folder in _folders.get() or ():
            os.close(folder)
        _folders.reset(locked)
        _inputs.reset(token)


def lock_folder(folder: Path) -> None:
    """Let no other command write results to a folder, until this command ends.

    Raises:
        InputError: another command does so already, or the folder cannot be opened.
    """
    if (locked := _folders.get()) is None:
        return
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {error.strerror}") from None
    locked.append(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{folder}: another command writes its results there") from None
    except OSError:
        # Some file systems of networks have no locks.
        return


def note_input(path: Path, file: int | None = None) -> None:
    """Note that a file is read; `file` is its descriptor, if it is open."""
    if (inputs := _inputs.get()) is None:
        return
    try:
        status = path.stat() if file is None else os.fstat(file)
    except (OSError, ValueError):
        return
    inputs.add((status.st_dev, status.st_ino))


def allow_update(path: Path) -> None:
    """Let a file be written that was read, because the command continues its own earlier result."""
    if not (inputs := _inputs.get()):
        return
    try:
        status = path.stat()
    except (OSError, ValueError):
        return
    inputs.discard((status.st_dev, status.st_ino))


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
