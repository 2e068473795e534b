"""The type and the default of a key in words, from its JSON schema: `int [1, 4096]`."""

import json
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]

_SCALARS = {"integer": "int", "number": "number", "string": "text", "boolean": "true or false"}
_POWERS = {10**n: f"10**{n}" for n in range(4, 16)} | {2**n: f"2**{n}" for n in range(20, 41)}
_POWERS |= {2**n - 1: f"2**{n} - 1" for n in (31, 32, 63)}
# The defaults that are ratios of published figures.
_FRACTIONS = {790 / 989: "790/989", 4.3 / 4.8: "4.3/4.8"}


def type_in_words(schema: Schema, link_to: Callable[[str], str]) -> str:
    """The type of a key.

    Args:
        schema: its JSON schema. `null` is left out, because the default says `optional`.
        link_to: returns the link to the section of the model with this name.
    """
    if "$ref" in schema or "properties" in schema:
        return link_to(schema.get("$ref", schema.get("title", "")).rpartition("/")[2])
    arms = [arm for arm in schema.get("anyOf", ()) if arm.get("type") != "null"]
    if arms:
        return " or ".join(type_in_words(arm, link_to) for arm in arms)
    if "oneOf" in schema:
        # All arms of a union are described in one section, so their links are the same.
        return " or ".join(dict.fromkeys(type_in_words(arm, link_to) for arm in schema["oneOf"]))
    return _plain_type(schema, link_to)


def _plain_type(schema: Schema, link_to: Callable[[str], str]) -> str:
    if values := schema.get("enum", [schema["const"]] if "const" in schema else ()):
        *others, last = (f"`{value}`" for value in values)
        return f"{', '.join(others)} or {last}" if others else last
    kind = schema.get("type")
    if kind == "array":
        items = type_in_words(schema["items"], link_to)
        return f"{_non_empty(schema, 'Items')}list of {items}"
    if kind == "object":
        free = schema["additionalProperties"]
        values = type_in_words(free, link_to) if isinstance(free, Mapping) else "any value"
        return f"{_non_empty(schema, 'Properties')}mapping of key paths to {values}"
    return f"{_SCALARS.get(str(kind), 'value')} {_range_in_words(schema)}".strip()


def _non_empty(schema: Schema, what: str) -> str:
    return "non-empty " if schema.get(f"min{what}") == 1 else ""


def _range_in_words(schema: Schema) -> str:
    """`[1, 4096]`; a round bracket excludes its end, and inf means no limit."""
    if "exclusiveMinimum" in schema:
        low = f"({_number(schema['exclusiveMinimum'])}"
    else:
        low = f"[{_number(schema['minimum'])}" if "minimum" in schema else "(-inf"
    if "exclusiveMaximum" in schema:
        high = f"{_number(schema['exclusiveMaximum'])})"
    else:
        high = f"{_number(schema['maximum'])}]" if "maximum" in schema else "inf)"
    return "" if (low, high) == ("(-inf", "inf)") else f"{low}, {high}"


def _number(value: float) -> str:
    return _POWERS.get(int(value), f"{value:.12g}")


def default_in_words(schema: Schema, *, is_required: bool) -> str:
    """`required`, `optional` for a default of null, or the default as a scenario would write it."""
    default = schema.get("default")
    if is_required:
        return "required"
    if default is None:
        return "optional"
    if isinstance(default, Mapping):
        # A section is shown by its kind alone.
        return f"default `{default['kind']}`" if list(default) == ["kind"] else "optional"
    if isinstance(default, float) and default in _FRACTIONS:
        return f"default {_FRACTIONS[default]}"
    return f"default `{default if isinstance(default, str) and default else json.dumps(default)}`"
