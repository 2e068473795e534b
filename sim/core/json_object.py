"""Reads JSON objects from texts and small files."""

import json
from pathlib import Path
from typing import Any

from sim.core.errors import InputError
from sim.core.packed import read_text

# No file that the project reads is nested half as deep.
MAX_NESTED = 50
_TOO_DEEP = f"lists and mappings are nested over {MAX_NESTED} deep"


def parse_json_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object that a text contains.

    Raises:
        InputError: the text is not a JSON object. The message is only a reason, because only the
            caller knows where the text is from.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("not JSON") from None
    if not isinstance(data, dict):
        raise InputError("not a JSON object")
    if is_nested_deeper(data, MAX_NESTED):
        raise InputError(_TOO_DEEP)
    return data


def read_json_object(path: Path, *, is_input: bool = True) -> dict[str, Any]:
    """Read a file of one JSON object.

    Args:
        path: the file.
        is_input: whether the command that reads it must not write it.

    Raises:
        InputError: `path:LINE: reason`, or `path: reason` if the error is not in one line.
    """
    text = read_text(path, is_input=is_input)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not JSON") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: not a JSON object")
    if is_nested_deeper(data, MAX_NESTED):
        raise InputError(f"{path}: {_TOO_DEEP}")
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
