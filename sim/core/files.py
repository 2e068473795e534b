"""Writes and removes files and folders of results; every error names the path."""

import json
from pathlib import Path

from sim.core.atomic import atomic_path
from sim.core.errors import InputError
from sim.core.inputs import refuse_input


def make_directory(path: Path) -> None:
    """Make a folder unless it exists. Raises InputError if it cannot be made."""
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError:
        raise InputError(f"{path}: is a file, not a directory") from None
    except FileNotFoundError:
        raise InputError(f"{path}: directory {path.parent} does not exist") from None
    except OSError as error:
        raise InputError(f"{path}: cannot make the directory: {error.strerror}") from error


def remove_file(path: Path) -> None:
    """Remove an old file of results if it exists. Raises InputError if it cannot be removed."""
    refuse_input(path)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot replace: {error.strerror}") from error


def json_text(content: object, indent: int = 2) -> str:
    """Lines of JSON; equal content gives equal text. NaN and infinity raise ValueError."""
    return json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none. Raises InputError if it cannot be written."""
    with atomic_path(path) as beside:
        beside.write_text(text, encoding="utf-8")
