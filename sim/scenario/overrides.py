"""`--set key.path=value`: changes to a scenario's data before it is validated."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from sim.core.errors import InputError, KeyPath, describe, dotted, one_line, shorten
from sim.scenario.key_locations import KeyLocations
from sim.scenario.strict_yaml import MAX_DEPTH, MAX_INTEGER, Scalar, YamlValue, parse_yaml_value


def plain_data(value: object, name: str, path: KeyPath = ()) -> YamlValue:
    """A copy with lists for tuples and arrays, text for paths, Python's numbers for numpy's.

    `name` is what errors call the data, and `path` where the value is in it.

    Raises:
        InputError: `name: key.path: reason`: a value that no scenario file can have, such as NaN.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping | list | tuple) and len(path) >= MAX_DEPTH:
        raise _data_error(name, path, f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not key:
                got = "an empty one" if key == "" else describe(key)
                raise _data_error(name, path, f"keys must be text, got {got}")
        return {key: plain_data(item, name, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item, name, (*path, n)) for n, item in enumerate(value)]
    if isinstance(value, PathLike):
        value = str(fspath(value))
    if problem := _problem(value):
        raise _data_error(name, path, problem)
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


def _data_error(name: str, path: KeyPath, reason: str) -> InputError:
    return InputError(f"{name}: {dotted(path)}: {reason}" if path else f"{name}: {reason}")


# `latency.host` and `latency.path` may also be names of packaged data, and `model` an id.
FILE_KEYS = ("path", "model", "host", "tokenizer", "engine")
_NAMES_MODEL = "model"
# A file with another ending, or a folder, is recognised if it exists.
_SUFFIXES = (".json", ".jsonl", ".csv", ".gz")


def from_here(key: str, value: YamlValue, base_dir: Path) -> YamlValue:
    """The value of an option, with its paths made relative to the scenario's folder.

    The shell completes paths from the current folder, so that is where a user means them from. A
    name of packaged data stays as it is.

    `key` is the last part of a key path; of a mapping, values of its own keys are changed too.
    """
    if isinstance(value, dict):
        return {
            name: from_here(str(name).rpartition(".")[2], item, base_dir)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [from_here(key, item, base_dir) for item in value]
    if isinstance(value, str) and key in FILE_KEYS and _is_path(key, value):
        # Resolved, because `..` leaves the folder that a link leads to.
        return os.path.relpath(value, base_dir.resolve())
    return value


def _is_path(key: str, value: str) -> bool:
    if not value or Path(value).is_absolute():
        return False
    # A model may be an id, and a dot in it, as in Qwen/Qwen2.5-0.5B, begins no suffix.
    is_file_name = key != _NAMES_MODEL and value.endswith(_SUFFIXES)
    return is_file_name or os.path.exists(value)  # noqa: PTH110 - of any string


def for_folder(data: Mapping[str, Any], base_dir: Path, folder: Path) -> dict[str, Any]:
    """The data of a scenario or of a server pool, with its paths relative to another folder.

    Paths of the model, the latency, the host and the engine are changed, also those of pools. A
    name that is no file stays as it is: it may be a model's id or packaged data.
    """
    moved = dict(data)
    for key in ("model", "path", "host", "engine"):
        path = moved.get(key)
        if isinstance(path, str) and (base_dir / path).exists():
            moved[key] = os.path.relpath((base_dir / path).resolve(), folder.resolve())
    for key in ("latency", "scheduler"):
        if isinstance(section := moved.get(key), Mapping):
            moved[key] = for_folder(section, base_dir, folder)
    if isinstance(pools := moved.get("pools"), Mapping):
        moved["pools"] = {name: for_folder(pool, base_dir, folder) for name, pool in pools.items()}
    return moved


Data = dict[str, YamlValue]


class Change(NamedTuple):
    """A new value for a key path, and what error messages call the change."""

    path: str
    value: YamlValue
    label: str


# `--set` options as text, or values by key path.
Overrides = Sequence[str] | Mapping[str, Any]


def apply_overrides(
    data: Data, locations: KeyLocations, overrides: Overrides, base_dir: Path = Path()
) -> tuple[Data, KeyLocations]:
    """Apply options in order; returns changed copies.

    Paths in options are relative to the current folder; in the data, to `base_dir`.

    The parts of a key path are separated by dots: `workload.parts.0.tenant`. Where the data has a
    list, the part is an index. A mapping on the path that is missing or null is created. The value
    of a text is read as YAML.
    """
    if isinstance(overrides, Mapping):
        changes = [_change(path, value, base_dir) for path, value in overrides.items()]
    else:
        changes = [_parse(override, base_dir) for override in overrides]
    return apply_changes(data, locations, changes)


def apply_changes(
    data: Data, locations: KeyLocations, changes: Sequence[Change]
) -> tuple[Data, KeyLocations]:
    """Like `apply_overrides`, for values that are parsed already."""
    changed = deepcopy(data)
    for path_text, value, label in changes:
        # Copied, because a later change may be to a key inside this value.
        path = _set(changed, path_text.strip().split("."), deepcopy(value), label)
        locations = locations.with_override(path, label)
    return changed, locations


def _parse(override: str, base_dir: Path) -> Change:
    label = f"--set {shorten(one_line(override))}"
    path_text, equals, value_text = override.partition("=")
    if not equals:
        raise InputError(f"{label}: must have the form key.path=value")
    key = path_text.strip().rpartition(".")[2]
    return Change(path_text, from_here(key, parse_yaml_value(value_text, label), base_dir), label)


def _change(path_text: str, value: object, base_dir: Path) -> Change:
    plain = plain_data(value, "--set", (path_text,))
    text = json.dumps(plain, ensure_ascii=False)
    label = f"--set {shorten(one_line(f'{path_text}={text}'))}"
    key = path_text.strip().rpartition(".")[2]
    return Change(path_text, from_here(key, plain, base_dir), label)


def _set(data: Data, parts: Sequence[str], value: YamlValue, label: str) -> KeyPath:
    if not all(parts):
        raise InputError(f"{label}: the key path has an empty part")
    container: Any = data
    path: KeyPath = ()
    for part in parts[:-1]:
        key = _key(container, part, path, label)
        if isinstance(container, dict) and container.get(key) is None:
            container[key] = {}
        if key == "host" and isinstance(container[key], str):
            # `--set host.cold_start_s=0` changes one cost of a preset.
            container[key] = {"preset": container[key]}
        container, path = container[key], (*path, key)
    key = _key(container, parts[-1], path, label)
    container[key] = value
    return (*path, key)


def _key(container: YamlValue, part: str, path: KeyPath, label: str) -> str | int:
    """The key or the index that a part of a key path means in the value at `path`."""
    if isinstance(container, dict):
        return part
    where = f"{label}: {dotted(path)} is"
    if not isinstance(container, list):
        raise InputError(f"{where} {describe(container)}: no key can be set in it")
    if part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(container):
        return int(part)
    raise InputError(f"{where} a list of {len(container)}: it has no index {part!r}")
