"""Reads a pickle without running any code from it.

A pickle is a program: it may name any function of any module and call it. Here each name in the
pickle becomes a new empty class that only stores its arguments. Nothing is imported or called, so a
file cannot do more than describe objects.

The standard library has two unpicklers; this uses the one written in Python. The one written in C
allocates memory for any number of objects that a damaged file claims to have.
"""

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any, Self

from sim.core.errors import InputError
from sim.core.packed import read_file


class PickledObject:
    """Stands for an object whose class is not loaded.

    Attributes:
        pickled_name: module and name of the class.
        arguments: what the class would be called with; if it derives from list, the items too.
        fields: the object's attributes; if its class derives from dict, the items too.
    """

    pickled_name = ""

    def __new__(cls, *arguments: object, **named: object) -> Self:
        made = super().__new__(cls)
        made.arguments = arguments
        made.fields = dict(named)
        return made

    def __init__(self, *arguments: object, **named: object) -> None:
        """Accept any arguments; `__new__` has stored them."""

    arguments: tuple[object, ...]
    fields: dict[str, object]

    def __setstate__(self, state: object) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.fields |= {str(key): value for key, value in part.items()}

    def __setitem__(self, key: object, value: object) -> None:
        """Store an item of an object whose class derives from dict."""
        self.fields[str(key)] = value

    def append(self, value: object) -> None:
        """Store an item of an object whose class derives from list."""
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
    """The object in a file; instances of classes become `PickledObject`.

    Raises:
        InputError: the file cannot be read, or is not a pickle.
    """
    content = read_file(path)
    try:
        read: object = _SafeUnpickler(content).load()
    except Exception as error:
        # A damaged pickle may raise any exception, depending on its bytes.
        raise InputError(f"{path}: is not a pickle, or is damaged ({error})") from None
    return read
