"""Nested JSON of results, and its parallel arrays: errors name the key and the index of a value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload.limits import MAX_TOKENS
from sim.workload.results.model import ReadOptions
from sim.workload.traces.fields import shown, why_not_whole
from sim.workload.traces.files import JsonObject, TextLine, parse_value, read_lines


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
    """The only JSON document of a file.

    Raises:
        InputError: the file cannot be read, or is no such document.
    """
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"{path}: holds no results")
    whole = lines[0]._replace(text="\n".join(line.text for line in lines))
    return JsonNode(whole, "", parse_value(whole))


def chosen(path: Path, runs: JsonNode, options: ReadOptions) -> JsonNode:
    """The only run of a file, or number `options.line`.

    Raises:
        InputError: the file has several runs and none is chosen, or it has no such run.
    """
    if options.draw_arrivals is not None:
        raise InputError("--draw-arrivals has no effect: the file says when requests were sent")
    found = list(runs.needed().items())
    if options.line is None and len(found) != 1:
        raise InputError(f"{path}: holds {len(found)} {runs.where}: say which with --line N")
    if options.line is not None and options.line > len(found):
        raise InputError(f"{path}: --line {options.line}: it has {len(found)} {runs.where}")
    return found[(options.line or 1) - 1]


def array(line: TextLine, row: JsonObject, key: str, *, hint: str) -> list[object]:
    """The list at `key`; `hint` tells the user how to get results that have it."""
    value = row.get(key)
    if value is None:
        raise line.error(key, f"missing: {hint}")
    if not isinstance(value, list):
        raise line.error(key, f"{shown(value)} is not a list")
    return value


def require_equal_lengths(line: TextLine, arrays: dict[str, list[object]]) -> int:
    """The number of requests: the length that all arrays have, at least 1."""
    (first, values), *others = arrays.items()
    for key, other in others:
        if len(other) != len(values):
            raise line.error(key, f"{len(other)} values, but {first} has {len(values)}")
    if not values:
        raise line.error(first, "empty: no request was sent")
    return len(values)


def tokens(line: TextLine, key: str, values: Sequence[object]) -> list[int]:
    """Values that must be whole numbers of at least 0."""
    for place, value in enumerate(values):
        if type(value) is not int or not 0 <= value <= MAX_TOKENS:
            raise line.error(f"{key}[{place}]", why_not_whole(value, 0, MAX_TOKENS))
    return [value for value in values if isinstance(value, int)]


def texts(line: TextLine, key: str, values: Sequence[object]) -> list[str]:
    """Values that must be texts; null counts as an empty one."""
    for place, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise line.error(f"{key}[{place}]", f"{shown(value)} is not text")
    return [value if isinstance(value, str) else "" for value in values]


def seconds_ns(line: TextLine, key: str, values: Sequence[object]) -> list[int]:
    """Values that must be at least 0 seconds; returned in ns."""
    return [
        round(_seconds(line, f"{key}[{i}]", value) * NS_PER_S) for i, value in enumerate(values)
    ]


def sums_ns(line: TextLine, key: str, values: Sequence[object]) -> tuple[list[int], list[int]]:
    """Values that must be lists of seconds; returns the lists' lengths, and their sums in ns."""
    counts, sums = [], []
    for place, value in enumerate(values):
        if not isinstance(value, list):
            raise line.error(f"{key}[{place}]", f"{shown(value)} is not a list")
        counts.append(len(value))
        total = sum(_seconds(line, f"{key}[{place}][{i}]", gap) for i, gap in enumerate(value))
        sums.append(round(total * NS_PER_S))
    return counts, sums


def _seconds(line: TextLine, where: str, value: object) -> Decimal | int:
    # Fractions are read as Decimal, so a float is NaN or Infinity.
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise line.error(where, f"{shown(value)} is not a finite number of seconds")
    if not 0 <= value <= MAX_TIME_NS // NS_PER_S:
        raise line.error(where, f"{shown(value)} s is not a possible time")
    return value
