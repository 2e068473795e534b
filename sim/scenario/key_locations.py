"""Where each key of a scenario was written, and which key an error of pydantic is about.

A pydantic location also names the arm of a union that was chosen, as in
`workload.synthetic.arrivals` or `max_new_tokens.constrained-int`. The file has no such key. The
model's JSON schema tells which parts of a location are arms.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from pydantic import BaseModel

from sim.core.errors import KeyPath, dotted


@dataclass(frozen=True, slots=True)
class KeyLocations:
    """Where each key path was written. The file's keys come first, then those set by options.

    Attributes:
        labels: `file.yaml:12` or `--set key.path=value` for each key path; the empty path is always
            among them.
        overridden: the key paths that options set.
    """

    labels: Mapping[KeyPath, str]
    overridden: frozenset[KeyPath] = frozenset()
    # What was asked before: a sweep asks the same for each of its points.
    _outside: dict[frozenset[str], "KeyLocations"] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _named: dict[str, dict[str | int, list[KeyPath]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @staticmethod
    def of_lines(name: str, lines: Mapping[KeyPath, int]) -> "KeyLocations":
        return KeyLocations({path: f"{name}:{line}" for path, line in lines.items()})

    def outside(self, sections: frozenset[str]) -> "KeyLocations":
        """The locations of the keys that are not in these sections of the scenario."""
        if sections not in self._outside:
            tops = {(section,) for section in sections}
            labels = {path: at for path, at in self.labels.items() if path[:1] not in tops}
            kept = frozenset(path for path in self.overridden if path in labels)
            self._outside[sections] = KeyLocations(labels, kept)
        return self._outside[sections]

    def named(self, section: str, key: str) -> Sequence[KeyPath]:
        """Every place in a section of the scenario that has this key, in the order of the file."""
        if section not in self._named:
            places = self._named[section] = {}
            for path in self.labels:
                if path[:1] == (section,):
                    places.setdefault(path[-1], []).append(path)
        return self._named[section].get(key, ())

    def with_override(self, path: KeyPath, label: str) -> "KeyLocations":
        """The locations after an option replaced everything at and below `path`."""
        labels = {p: old for p, old in self.labels.items() if p[: len(path)] != path}
        labels[path] = label
        overridden = {p for p in self.overridden if p[: len(path)] != path} | {path}
        return KeyLocations(labels, frozenset(overridden))

    def nearest(self, path: KeyPath) -> KeyPath:
        """The key that an error about `path` points to. It is a key that the user wrote.

        It is `path` itself if the user wrote it, else a key below `path` that an option set. If
        there is neither, the same is tried for the key above `path`.
        """
        while path not in self.labels:
            below = [p for p in self.labels if p in self.overridden and p[: len(path)] == path]
            if below:
                return below[0]
            path = path[:-1]
        return path

    def positions(self) -> Mapping[KeyPath, int]:
        """The place of each key path in the order of `labels`."""
        return {path: place for place, path in enumerate(self.labels)}

    def key_to_blame(self, paths: Iterable[KeyPath]) -> KeyPath:
        """Of several keys that contradict each other, the one that the error is about.

        It is the first one that an option set, else the first one that is written in the file, else
        the first.
        """
        candidates = list(paths)
        set_by_option = (path for path in candidates if self.nearest(path) in self.overridden)
        in_file = (path for path in candidates if path in self.labels)
        return next(chain(set_by_option, in_file, candidates))

    def message(self, path: KeyPath, reason: str, *, blamed: KeyPath | None = None) -> str:
        """One line: `label: key.path: reason`, without the key path if the label shows it.

        The reason is about the key `path`; the label is that of the key `blamed`, if it is given.
        """
        written = self.nearest(path if blamed is None else blamed)
        label = self.labels[written]
        if not path or (written == path and path in self.overridden):
            return f"{label}: {reason}"
        return f"{label}: {dotted(path)}: {reason}"


_Schema = Mapping[str, Any]


class ErrorPlace(NamedTuple):
    """Where in the user's data an error is.

    Attributes:
        siblings: all keys that the section of the path's last key may have.
        in_union: the value may have one of several types, and the error is about one of these.
    """

    path: KeyPath
    siblings: tuple[str, ...] = ()
    in_union: bool = False


class Sections(NamedTuple):
    """The keys that a pydantic model has, at every depth."""

    root: _Schema

    @staticmethod
    @cache
    def of(model: type[BaseModel]) -> "Sections":
        return Sections(model.model_json_schema())

    def locate(self, location: Sequence[str | int]) -> ErrorPlace:
        """Translate a pydantic error's `loc`."""
        place = ErrorPlace(())
        schema = self._resolve(self.root)
        for step in location:
            if step in (kinds := self._kinds(schema)):
                schema = kinds[str(step)]
            elif len(arms := self._arms(schema)) > 1:
                schema = next((arm for arm in arms if _is_called(arm, step)), {})
                place = ErrorPlace(place.path, place.siblings, in_union=True)
            else:
                place = ErrorPlace((*place.path, step), tuple(schema.get("properties", {})))
                schema = self._child(schema, step)
        return place

    @property
    def top_level(self) -> Collection[str]:
        keys: Collection[str] = self._resolve(self.root)["properties"].keys()
        return keys

    def sections_with(self, key: str) -> list[str]:
        """The top-level sections that know `key` in any of their kinds."""
        top_level = self._resolve(self.root)["properties"]
        return [
            name
            for name, schema in top_level.items()
            if any(key in section.get("properties", {}) for section in self._families(schema))
        ]

    def family_with(self, section: str, key: str) -> str | None:
        """The family whose `section` knows `key`; None if there is no such family."""
        for arm in self._families(self._resolve(self.root)["properties"].get(section, {})):
            known = arm.get("properties", {})
            if key in known and "family" in known:
                return str(known["family"]["const"])
        return None

    def _kinds(self, schema: _Schema) -> dict[str, _Schema]:
        """The arms of a union that a key selects, by the value of that key (`kind`, `family`)."""
        mapping = schema.get("discriminator", {}).get("mapping", {})
        kinds = {kind: self._resolve({"$ref": ref}) for kind, ref in mapping.items()}
        if not kinds:
            for arm in self._families(schema):
                kinds[arm.get("properties", {}).get("family", {}).get("const")] = arm
        return kinds

    def _families(self, schema: _Schema) -> list[_Schema]:
        """The schemas of a section, one for each family; just one if it has no families."""
        schema = self._resolve(schema)
        if "discriminator" in schema or "oneOf" not in schema:
            return [schema]
        return [self._resolve(arm) for arm in schema["oneOf"]]

    def _child(self, schema: _Schema, step: str | int) -> _Schema:
        if isinstance(step, int):
            return self._resolve(schema.get("items", {}))
        known = schema.get("properties", {})
        # If users choose the keys of a mapping, all its values have one schema.
        free = schema.get("additionalProperties")
        return self._resolve(known.get(step, free if isinstance(free, Mapping) else {}))

    def _resolve(self, schema: _Schema) -> _Schema:
        """Follow references, and replace a union of one type with null by that type."""
        while True:
            if "$ref" in schema:
                schema = self.root["$defs"][schema["$ref"].rpartition("/")[2]]
            elif len(arms := self._arms(schema)) == 1:
                schema = arms[0]
            else:
                return schema

    def _arms(self, schema: _Schema) -> list[_Schema]:
        """The arms of a union other than null; empty for anything else."""
        arms = schema.get("anyOf", ())
        return [self._resolve(arm) for arm in arms if arm.get("type") != "null"]


def _is_called(arm: _Schema, step: str | int) -> bool:
    """Whether an error's `loc` means this arm of a union: a model by its name, or a list.

    A model's name is that of the function of `sim.validation.lazy_schema`.
    """
    is_list = str(step).startswith("list[")
    return arm.get("type") == "array" if is_list else f"[{arm.get('title')}()]" in str(step)
