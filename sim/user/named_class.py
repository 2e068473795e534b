"""A Python class of the user that a scenario names: `module:Class` (docs/how-to/plug-in.md).

Wherever a key takes such a class, it takes the name alone, or a section with the name as its `kind`
and the class's own settings beside it. `OrUserClass` makes a section's type accept both.
"""

import json
import math
from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from sim.core.errors import KeyPath
from sim.core.messages import shorten

_MAX_INTEGER = 2**63 - 1


class UserClass(BaseModel):
    """A class of the user's own: `kind` is `module:Class`, all other keys are its settings."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    kind: str

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of its constructor: plain values, lists and mappings."""
        return dict(self.__pydantic_extra__ or {})

    def plain(self) -> Any:
        """The section as the scenario would write it: the name alone if there are no settings."""
        return {"kind": self.kind, **self.settings} if self.settings else self.kind

    def __str__(self) -> str:
        plain = self.plain()
        return plain if isinstance(plain, str) else json.dumps(plain)


class OrUserClass:
    """Annotates a union `... | UserClass`: text with a colon, or as a `kind`, names a class.

    Anything else is validated, and described by the JSON schema, as if there were no `UserClass`.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        others = handler(reduce(or_, [arm for arm in get_args(source) if arm is not UserClass]))
        dump = core_schema.wrap_serializer_function_ser_schema(_dump, schema=others)
        return core_schema.no_info_wrap_validator_function(_validate, others, serialization=dump)


def names_class(value: object) -> bool:
    """Whether a value names a user's class; built-in names have no colon."""
    return isinstance(value, str) and ":" in value


def check_name(name: str) -> None:
    """Raise ValueError unless the name has the form `module:Class`."""
    module, _, cls = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), cls)):
        raise ValueError(f"must be a name or module:Class, got {shorten(repr(name))}")


def _validate(value: Any, handler: Callable[[Any], Any]) -> Any:
    if isinstance(value, UserClass):
        return value
    name = value.get("kind") if isinstance(value, dict) else value
    if not isinstance(name, str) or not names_class(name):
        return handler(value)
    check_name(name)
    data = value if isinstance(value, dict) else {"kind": value}
    for key, setting in data.items():
        if not isinstance(key, str) or not _is_plain(setting):
            raise ValueError(f"{shorten(str(key))} is too large, or no plain value")
    return UserClass.model_validate(data)


def _is_plain(value: Any) -> bool:
    """Whether a value can be written to JSON: YAML's values always can, those of a log may not."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str) or abs(value) <= _MAX_INTEGER


def _dump(value: Any, handler: Callable[[Any], Any]) -> Any:
    return value.plain() if isinstance(value, UserClass) else handler(value)


_MAY_NAME = (BaseModel, UserClass, list, tuple)


def user_classes(section: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """All users' classes that a validated section names, in any key: the key path and the name.

    This is how the project knows whether a scenario names code.
    """
    if isinstance(section, UserClass):
        yield path, section.kind
    elif isinstance(section, BaseModel):
        family = getattr(section, "family", None)
        if isinstance(family, str) and ":" in family:
            yield (*path, "family"), family
        for key in type(section).model_fields:
            value = getattr(section, key)
            # Most values are numbers and words, and a sweep has 100,000 scenarios.
            if isinstance(value, _MAY_NAME):
                yield from user_classes(value, (*path, key))
    elif isinstance(section, list | tuple):
        for index, item in enumerate(section):
            yield from user_classes(item, (*path, index))
