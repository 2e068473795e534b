"""Whole files or none: everything is written beside its target, then renamed over it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from sim.core.errors import InputError

_serial = count()


def check_target(target: Path) -> None:
    """Find out whether a file could be written there.

    Raises:
        InputError: its folder does not exist, it is a folder itself, or neither file nor new.
    """
    try:
        if not target.parent.is_dir():
            raise InputError(f"{target}: its folder {target.parent} does not exist")
        if target.is_dir():
            raise InputError(f"{target}: is a folder, expected a file to write")
        # Renaming over a pipe or a device would put an end to it.
        if target.exists() and not target.is_file():
            raise InputError(f"{target}: is not a regular file")
    except OSError as error:
        raise _refusal(target, error) from error


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A path in `target`'s folder to write to; it becomes `target` if the block succeeds.

    Raises:
        InputError: see `check_target`, or writing failed.
    """
    check_target(target)
    beside = target.with_name(f".{os.getpid()}-{next(_serial)}.tmp")
    try:
        yield beside
        beside.replace(target)
    except OSError as error:
        raise _refusal(target, error) from error
    finally:
        beside.unlink(missing_ok=True)


def _refusal(target: Path, error: OSError) -> InputError:
    return InputError(f"{target}: cannot be written: {error.strerror or error}")
