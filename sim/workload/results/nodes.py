"""Nested JSON of results: each value knows where it is, so that errors name it."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload.limits import MAX_TOKENS
from sim.workload.traces.fields import shown, why_not_whole
from sim.workload.traces.files import TextLine, parse_value, read_lines


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value of a JSON document.

    Attributes:
        line: the document; it may be spread over many lines, of which this is the first.
        where: the keys and indices that lead to the value.
        value: the value; None also if the key is missing.
    """

    line: TextLine
    where: str
    value: object

    def error(self, reason: str) -> InputError:
        return self.line.error(self.where or "document", reason)

    def __getitem__(self, key: object) -> "JsonNode":
        """The value of a key of an object; None if the key is missing."""
        if self.value is not None and not isinstance(self.value, dict):
            raise self.error(f"{shown(self.value)} is not an object")
        found = self.value.get(key) if isinstance(self.value, dict) else None
        return JsonNode(self.line, f"{self.where}.{key}" if self.where else str(key), found)

    def items(self) -> Iterator["JsonNode"]:
        """The items of a list; a list that is missing has none."""
        if self.value is not None and not isinstance(self.value, list):
            raise self.error(f"{shown(self.value)} is not a list")
        for place, value in enumerate(self.value or ()):
            yield JsonNode(self.line, f"{self.where}[{place}]", value)

    def text(self) -> str:
        """The text; empty for any other value."""
        return self.value if isinstance(self.value, str) else ""

    def tokens(self) -> int | None:
        """A number of tokens; None if it is missing."""
        value = self.value
        if isinstance(value, Decimal) and value == value.to_integral_value():
            value = int(value)
        if value is None or (type(value) is int and 0 <= value <= MAX_TOKENS):
            return value
        raise self.error(why_not_whole(self.value, 0, MAX_TOKENS))

    def time_ns(self, unit_ns: int = NS_PER_S) -> int | None:
        """A time in units of `unit_ns`, in ns; None if it is missing."""
        value = self.value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise self.error(f"{shown(value)} is not a finite number")
        if not 0 <= value <= MAX_TIME_NS // unit_ns:
            raise self.error(f"{shown(value)} is not a possible time")
        return round(value * unit_ns)

    def needed(self) -> "JsonNode":
        """The node itself. Raises InputError if its value is missing."""
        if self.value is None:
            raise self.error("missing")
        return self


def read_node(path: Path) -> JsonNode:
    """The only JSON document of a file."""
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"{path}: holds no results")
    whole = lines[0]._replace(text="\n".join(line.text for line in lines))
    return JsonNode(whole, "", parse_value(whole))
