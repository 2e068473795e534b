"""Stands in for objects that a scheduler calls and that decide nothing."""

from typing import Any


class Quiet:
    """Has the given attributes, and accepts any other call."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None
