"""Values for settings, made from their declarations, and Hypothesis strategies that draw them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel


def other_settings(
    section: type[BaseModel], settings: type, known: Collection[str]
) -> st.SearchStrategy[dict[str, Any]]:
    """Values for the fields of a settings class that are not `known`: mostly the defaults.

    So a new setting is drawn without a word here.
    """
    drawn = {}
    for field in fields(settings):
        if field.name not in known:
            changed = other_values(section, field.name)
            drawn[field.name] = st.sampled_from([*[field.default] * 4, *changed])
    return st.fixed_dictionaries(drawn)


def other_values(section: type[BaseModel], key: str) -> list[Any]:
    """A few values that a key may have instead of its default: choices, or small numbers.

    Raises:
        TypeError: it has neither.
    """
    schema = _schemas(section)[key]
    values = [value for arm in schema.get("anyOf", [schema]) for value in _values(key, arm)]
    return [value for value in values if value != schema.get("default")]


@cache
def _schemas(section: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of each key."""
    properties: dict[str, Any] = section.model_json_schema()["properties"]
    return properties


def _values(key: str, schema: Mapping[str, Any]) -> Iterator[Any]:
    kind = schema.get("type")
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    if "enum" in schema or "const" in schema:
        yield from schema.get("enum", [schema.get("const")])
    elif kind == "boolean":
        yield from (False, True)
    elif kind == "integer":
        yield from (low, low + 1, low + 2)
    elif kind == "number":
        yield from (low + 0.25, low + 0.5)
    elif kind != "null":
        raise TypeError(f"{key}: there is no rule for values of {schema}")
