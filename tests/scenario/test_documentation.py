"""docs/scenario.md names every key of every section, with its default, and no other."""

import json
from pathlib import Path

from sim.scenario.schema import Scenario
from sim.sglang.section.scheduler import DEFAULT_MEM_FRACTION_STATIC
from sim.vllm.section import DEFAULT_GPU_MEMORY_UTILIZATION
from sim.workload.config import DEFAULT_BLOCK_SIZE

DOCUMENT = Path(__file__).parents[2] / "docs" / "scenario.md"


def documented_sections():
    """Of every table of keys: {key: (type, default)}."""
    sections = []
    for block in DOCUMENT.read_text().split("\n\n"):
        if block.startswith("| key "):
            rows = [line.strip("|").split("|") for line in block.splitlines()[2:]]
            sections.append(
                {
                    key.strip(" `"): (type_.strip(), default.strip())
                    for key, type_, _unit, default, _meaning in rows
                }
            )
    return sections


def schema_sections():
    """Of every model: {key: JSON schema}. A model is found where it is defined, not where named."""

    def below(schema):
        if isinstance(schema, dict):
            if schema.get("type") == "object" and "properties" in schema:
                yield schema["properties"]
            for part in schema.values():
                yield from below(part)
        elif isinstance(schema, list):
            for part in schema:
                yield from below(part)

    return list(below(Scenario.model_json_schema()))


def signature(kind, keys):
    return (kind or "", *sorted(keys))


def documented_with(wanted):
    return [
        rows
        for rows in documented_sections()
        if signature(rows["kind"][0].strip("`") if "kind" in rows else None, rows) == wanted
    ]


def test_every_section_of_the_schema_is_documented_and_no_other():
    """Tables and models have the same keys, kind by kind."""
    in_schema = [signature(p.get("kind", {}).get("const"), p) for p in schema_sections()]
    in_document = [
        signature(rows["kind"][0].strip("`") if "kind" in rows else None, rows)
        for rows in documented_sections()
    ]
    assert sorted(in_document) == sorted(in_schema)


def default_in_words(schema):
    if "default" not in schema:
        return "required"
    default = schema["default"]
    if default is None:
        return "none"
    if isinstance(default, dict) and list(default) == ["kind"]:
        default = default["kind"]
    if isinstance(default, dict):
        return "no limits" if "ttft_ms" in default else "all defaults"
    if isinstance(default, list):
        return f"`{json.dumps(default)}`"
    if isinstance(default, str) and default:
        return f"`{default}`"
    fractions = {790 / 989: "790/989", 4.3 / 4.8: "4.3/4.8"}
    return fractions.get(default, f"`{json.dumps(default)}`")


def bounds_in_words(schema):
    """`[1, 4096]`, as the type column writes it; empty unless both ends are given."""
    opening, low, high = "[", schema.get("minimum"), schema.get("maximum")
    if low is None:
        opening, low = "(", schema.get("exclusiveMinimum")
    if low is None or high is None:
        return ""
    if high == 2**31 - 1:
        return f"{opening}{low:g}, 2**31)"
    powers = {10**n: f"10**{n}" for n in range(4, 13)} | {2**n: f"2**{n}" for n in (20, 36, 40)}
    return f"{opening}{low:g}, {powers.get(high, f'{high:g}')}"


def faults(properties, rows):
    """What a table says otherwise than the schema."""
    found = []
    for key, schema in properties.items():
        type_, default = rows[key]
        if default != default_in_words(schema):
            found.append(f"{key}: default {default}, not {default_in_words(schema)}")
        found += [
            f"{key}: {type_} lacks {bounds_in_words(arm)}"
            for arm in (schema, *schema.get("anyOf", ()))
            if bounds_in_words(arm) not in type_
        ]
    return found


def test_every_default_and_range_is_documented():
    """The type and default columns say what the schema says."""
    for properties in schema_sections():
        candidates = documented_with(signature(properties.get("kind", {}).get("const"), properties))
        best = min((faults(properties, rows) for rows in candidates), key=len)
        assert best == []


def test_values_used_where_a_key_is_none_are_documented():
    """Fallbacks that are no defaults of the schema are said too."""
    text = DOCUMENT.read_text()
    assert f"{DEFAULT_MEM_FRACTION_STATIC} if none" in text
    assert f"{DEFAULT_GPU_MEMORY_UTILIZATION} if none" in text
    assert f"{DEFAULT_BLOCK_SIZE} if none" in text
