"""Data of a Python program as data that a scenario file could have."""

import math
from collections.abc import Mapping
from os import PathLike, fspath
from typing import cast

import numpy as np

from sim.core.errors import InputError, KeyPath
from sim.core.messages import describe, dotted, shorten
from sim.scenario.yaml_loader import MAX_DEPTH, MAX_INTEGER, Scalar, YamlValue


def plain_data(value: object, name: str, path: KeyPath = ()) -> YamlValue:
    """A copy with lists for tuples and arrays, text for paths, Python's numbers for numpy's.

    Args:
        value: mappings, sequences and scalars, nested as you like.
        name: what errors call the data.
        path: where the value is in it.

    Raises:
        InputError: `name: key.path: reason`: a value that no scenario file can have, such as NaN.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping | list | tuple) and len(path) >= MAX_DEPTH:
        raise _error(name, path, f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not key:
                got = "an empty one" if key == "" else describe(key)
                raise _error(name, path, f"keys must be text, got {got}")
        return {key: plain_data(item, name, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item, name, (*path, n)) for n, item in enumerate(value)]
    if isinstance(value, PathLike):
        value = str(fspath(value))
    if problem := _problem(value):
        raise _error(name, path, problem)
    return cast("Scalar", value)


def _problem(value: object) -> str | None:
    """Why a scenario file cannot have this scalar; None: it can."""
    match value:
        case None | bool():
            return None
        case str():
            bad = any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value)
            return "a character here is not allowed in text" if bad else None
        case int():
            bad = abs(value) > MAX_INTEGER
            return "is too large: whole numbers end at 2**63 - 1" if bad else None
        case float():
            return None if math.isfinite(value) else f"{value} is not a finite number"
    return f"must be a value that YAML has, got {shorten(type(value).__name__)}"


def _error(name: str, path: KeyPath, reason: str) -> InputError:
    return InputError(f"{name}: {dotted(path)}: {reason}" if path else f"{name}: {reason}")
