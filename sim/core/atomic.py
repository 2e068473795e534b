"""Whole files or none: everything is written beside its target, then renamed over it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.core.errors import InputError


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A path in `target`'s directory to write to; it becomes `target` if the block succeeds.

    Raises:
        InputError: the directory does not exist, the target is no regular file, or writing failed.
    """
    if target.is_dir():
        raise InputError(f"{target}: is a directory, not a file to write")
    # Renaming over a pipe or a device would put an end to it.
    if target.exists() and not target.is_file():
        raise InputError(f"{target}: is not a regular file")
    if not target.parent.is_dir():
        raise InputError(f"{target}: directory {target.parent} does not exist")
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield beside
        os.replace(beside, target)  # noqa: PTH105 - Path.replace hides that this is atomic
    except OSError as error:
        raise InputError(f"{target}: cannot write: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)
