"""Translates the locations of pydantic's errors to the key paths that the user wrote.

A pydantic location also names the arm of a union that was chosen, as in
`workload.synthetic.arrivals` or `max_new_tokens.constrained-int`. The file has no such key. The
model's JSON schema tells which parts of a location are arms.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from sim.core.errors import KeyPath

_Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ErrorPlace:
    """Where in the user's data an error is.

    Attributes:
        path: the key path as written.
        siblings: all keys that the section of the path's last key may have.
        in_union: the value may have one of several types, and the error is about one of these.
    """

    path: KeyPath
    siblings: tuple[str, ...] = ()
    in_union: bool = False


@dataclass(frozen=True, slots=True)
class Sections:
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
        """The keys at the top."""
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
    """Whether an error's `loc` means this arm of a union: a model by its name, or a list."""
    is_list = str(step).startswith("list[")
    return arm.get("type") == "array" if is_list else arm.get("title") == step
