"""Writes files whole or not at all: to a temporary file, which is then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sim.core.errors import InputError
from sim.core.inputs import refuse_input


def check_target(target: Path) -> None:
    """Check that a file can be written at `target`.

    Raises:
        InputError: the folder does not exist, or the target is a folder, a pipe or a device, or a
            file that the command has read.
    """
    try:
        if not target.parent.is_dir():
            raise InputError(f"{target}: its folder {target.parent} does not exist")
        if target.is_dir():
            raise InputError(f"{target}: is a folder, expected a file to write")
        # Renaming a file over a pipe or a device would remove it.
        if target.exists() and not target.is_file():
            raise InputError(f"{target}: is not a regular file")
        refuse_input(target)
    except OSError as error:
        raise _refusal(target, error) from error


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Give a path beside `target` to write to; it is renamed to `target` if the block succeeds.

    Raises:
        InputError: see `check_target`, or writing failed.
    """
    check_target(target)
    # Nobody can guess the name, and put a link there that leads to another file.
    beside = target.with_name(f".{os.getpid()}-{os.urandom(8).hex()}.tmp")
    try:
        beside.touch(exist_ok=False)
        yield beside
        beside.replace(target)
    except OSError as error:
        raise _refusal(target, error) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _refusal(target: Path, error: OSError) -> InputError:
    return InputError(f"{target}: cannot be written: {error.strerror or error}")
