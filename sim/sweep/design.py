"""The settings of a sweep, and how a plot divides them into panels and lines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Design:
    """The settings of a sweep, seeds left out.

    Attributes:
        keys: the swept key paths, without `seed`.
        settings: values by key path, every one different, in the sweep's order.
    """

    keys: tuple[str, ...]
    settings: tuple[Settings, ...]

    @staticmethod
    def of(keys: Sequence[str], settings: Sequence[Settings]) -> "Design":
        """The design of settings among which some may be equal."""
        found = {same([setting[key] for key in keys]): setting for setting in reversed(settings)}
        return Design(tuple(keys), tuple(reversed(found.values())))

    def values(self, key: str) -> list[Any]:
        """The different values of a key, in the sweep's order."""
        return list({same(setting[key]): setting[key] for setting in self.settings}.values())

    def where(self, wanted: Settings) -> "Design":
        """Only the settings that have these values; a list allows any of its values."""
        allowed = {key: _choices(values) for key, values in wanted.items()}
        settings = [
            setting
            for setting in self.settings
            if all(same(setting[key]) in values for key, values in allowed.items())
        ]
        return Design(self.keys, tuple(settings))

    def divided(self, keys: Sequence[str]) -> "list[tuple[Settings, Design]]":
        """Groups of settings that agree in these keys: pairs of the keys' values and the group.

        Groups are in the order of their first settings.
        """
        parts: dict[str, list[Settings]] = {}
        for setting in self.settings:
            parts.setdefault(same([setting[key] for key in keys]), []).append(setting)
        return [
            ({key: part[0][key] for key in keys}, Design(self.keys, tuple(part)))
            for part in parts.values()
        ]

    def undecided(self, named: Sequence[str]) -> tuple[str, ...]:
        """Keys that still have several values when each named key has one value.

        Only these need panels. Example: if every policy has its own chunk size, a plot that names
        the policy needs no panels for chunk sizes.
        """
        known = list(named)
        for key in self.keys:
            if any(len(part.values(key)) > 1 for _, part in self.divided(known)):
                known.append(key)
        return tuple(known[len(named) :])

    def panels(self, named: Sequence[str]) -> "list[tuple[Settings, Design]]":
        """A panel for each combination of values of the keys that a plot does not name."""
        return self.divided(self.undecided(named))


def same(value: Any) -> str:
    """Text that is the same for equal values. 1 and 1.0 are equal here, 1 and true are not."""
    return json.dumps(_whole(value), sort_keys=True)


def _choices(values: Any) -> set[str]:
    return {same(value) for value in (values if isinstance(values, list | tuple) else [values])}


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value
