"""Reads JSON objects from texts and small files."""

import json
from pathlib import Path
from typing import Any

from sim.core.errors import InputError
from sim.core.packed import read_text

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
