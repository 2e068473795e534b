"""The parallel arrays of benchmark results; errors name the key and the index."""

from collections.abc import Sequence
from decimal import Decimal

from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.workload.limits import MAX_TOKENS
from sim.workload.traces.fields import shown, why_not_whole
from sim.workload.traces.lines import JsonObject, TextLine


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
