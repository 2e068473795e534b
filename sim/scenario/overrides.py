"""`--set key.path=value`: changes to a scenario's data before it is validated."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from sim.core.errors import InputError, KeyPath
from sim.core.messages import describe, dotted, one_line, shorten
from sim.scenario.file_keys import from_here
from sim.scenario.key_locations import KeyLocations
from sim.scenario.plain_data import plain_data
from sim.scenario.yaml_loader import YamlValue, parse_yaml_value

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

    Raises:
        InputError: the option has no `=` or its value is not YAML; or as `apply_changes`.
    """
    if isinstance(overrides, Mapping):
        changes = [_change(path, value, base_dir) for path, value in overrides.items()]
    else:
        changes = [_parse(override, base_dir) for override in overrides]
    return apply_changes(data, locations, changes)


def apply_changes(
    data: Data, locations: KeyLocations, changes: Sequence[Change]
) -> tuple[Data, KeyLocations]:
    """Like `apply_overrides`, for values that are parsed already.

    Raises:
        InputError: a path has an empty part, an index that the list does not have, or a key below
            a value that is neither a mapping nor a list.
    """
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
