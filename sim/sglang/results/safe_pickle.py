"""Reads a pickle without running anything of it.

A pickle is a program: it may name any function of any module and call it. Here every name stands
for an empty class made on the spot, that keeps what it is given. Nothing is looked up, imported or
called, so a file can do no more than describe objects.

The unpickler is the one written in Python: the one in C makes room for as many objects as a
damaged file says it has.
"""

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any, Self

from sim.core.errors import InputError


class PickledObject:
    """An object of a class that is not loaded: its name, and what the pickle says of it."""

    pickled_name = ""

    def __new__(cls, *arguments: object, **named: object) -> Self:
        made = super().__new__(cls)
        made.arguments = arguments
        made.fields = dict(named)
        return made

    def __init__(self, *arguments: object, **named: object) -> None:
        """Take whatever the real class is given."""

    arguments: tuple[object, ...]
    fields: dict[str, object]

    def __setstate__(self, state: object) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.fields |= {str(key): value for key, value in part.items()}

    def __setitem__(self, key: object, value: object) -> None:
        """Items of classes derived from dict."""
        self.fields[str(key)] = value

    def append(self, value: object) -> None:
        """Items of classes derived from list."""
        self.arguments = (*self.arguments, value)

    def __hash__(self) -> int:
        return id(self)


class _SafeUnpickler(pickle._Unpickler):
    def __init__(self, content: bytes) -> None:
        super().__init__(BytesIO(content))
        self._classes: dict[str, type[PickledObject]] = {}

    def find_class(self, module: str, name: str) -> Any:
        full_name = f"{module}.{name}"
        if full_name not in self._classes:
            self._classes[full_name] = type(
                "PickledObject", (PickledObject,), {"pickled_name": full_name}
            )
        return self._classes[full_name]


def read_pickle_safely(path: Path) -> object:
    """The object in a file; those of classes are `PickledObject`.

    Raises:
        InputError: the file cannot be read, or is no pickle.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        read: object = _SafeUnpickler(content).load()
    except Exception as error:
        # A damaged pickle fails in whatever way its bytes happen to mean.
        raise InputError(f"{path}: is no pickle, or a damaged one ({error})") from None
    return read
