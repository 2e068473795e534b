"""`--set key.path=value`: changes to a scenario's data before it is validated."""

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

from sim.core.errors import InputError, KeyPath
from sim.core.messages import describe, dotted, one_line, shorten
from sim.scenario.key_locations import KeyLocations
from sim.scenario.yaml_loader import YamlValue, parse_yaml_value

Data = dict[str, YamlValue]


class Change(NamedTuple):
    """A new value for a key path, and what error messages call the change."""

    path: str
    value: YamlValue
    label: str


def apply_overrides(
    data: Data, locations: KeyLocations, overrides: Sequence[str]
) -> tuple[Data, KeyLocations]:
    """Apply options in order; returns changed copies.

    The parts of a path are separated by dots; a number is an index where the data has a list.
    Mappings on the way that are missing or null are created. The value is read as YAML.

    Raises:
        InputError: the option has no `=`, an empty key, a value that is not YAML, an index that a
            list does not have, or a path through something other than a mapping or list.
    """
    return apply_changes(data, locations, [_parse(override) for override in overrides])


def apply_changes(
    data: Data, locations: KeyLocations, changes: Sequence[Change]
) -> tuple[Data, KeyLocations]:
    """Like `apply_overrides`, for values that are parsed already.

    Raises:
        InputError: a path has an empty part, an index that a list does not have, or leads through
            something other than a mapping or list.
    """
    changed = deepcopy(data)
    for path_text, value, label in changes:
        # Copied, because a later change may be to a key inside this value.
        path = _set(changed, path_text.strip().split("."), deepcopy(value), label)
        locations = locations.with_override(path, label)
    return changed, locations


def _parse(override: str) -> Change:
    label = f"--set {shorten(one_line(override))}"
    path_text, equals, value_text = override.partition("=")
    if not equals:
        raise InputError(f"{label}: must have the form key.path=value")
    return Change(path_text, parse_yaml_value(value_text, label), label)


def _set(data: Data, parts: Sequence[str], value: YamlValue, label: str) -> KeyPath:
    if not all(parts):
        raise InputError(f"{label}: the key path has an empty part")
    container: YamlValue = data
    path: KeyPath = ()
    for part in parts[:-1]:
        container, step = _descend(container, part, path, label)
        path = (*path, step)
    if isinstance(container, dict):
        container[parts[-1]] = value
        return (*path, parts[-1])
    if isinstance(container, list):
        index = _index(container, parts[-1], path, label)
        container[index] = value
        return (*path, index)
    raise _not_a_container(container, path, label)


def _descend(
    container: YamlValue, part: str, path: KeyPath, label: str
) -> tuple[YamlValue, str | int]:
    if isinstance(container, dict):
        if container.get(part) is None:
            container[part] = {}
        return container[part], part
    if isinstance(container, list):
        index = _index(container, part, path, label)
        return container[index], index
    raise _not_a_container(container, path, label)


def _index(items: list[YamlValue], part: str, path: KeyPath, label: str) -> int:
    if part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(items):
        return int(part)
    raise InputError(f"{label}: {dotted(path)} is a list of {len(items)}: it has no index {part!r}")


def _not_a_container(value: YamlValue, path: KeyPath, label: str) -> InputError:
    return InputError(f"{label}: {dotted(path)} is {describe(value)}: no key can be set in it")
