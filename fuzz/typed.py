"""Changes values of known type: times, counts and names of whole columns of records.

`fuzz.mutate` damages one place without a thought for what it is. Here a field keeps its type, or
nearly so, and the same field changes in one record, in several, or in all.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from fuzz.cases import FuzzCase, Mutation
from fuzz.files import RESULTS
from fuzz.traces import TRACES, scenario_of

_TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)?")
_NUMBERS = re.compile(r"(?<![\w.])-?\d+(\.\d+)?")
_MANY = 40

Column = list[tuple[Any, Any]]


def _columns(tree: Any) -> dict[tuple[str, ...], Column]:
    """The places of a document by path, in which `*` stands for a place of a list."""
    found: dict[tuple[str, ...], Column] = {}
    todo: list[tuple[tuple[str, ...], Any]] = [((), tree)]
    while todo:
        path, each = todo.pop()
        for key, value in _children(each):
            below = (*path, "*" if isinstance(each, list) else str(key))
            found.setdefault(below, []).append((each, key))
            todo.append((below, value))
    return found


def _children(tree: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(tree, dict):
        yield from tree.items()
    elif isinstance(tree, list):
        yield from enumerate(tree[:_MANY])


def typed_tree(tree: Any, rng: Random) -> Any:
    """The document with one to three fields of another value, in one record or in all."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        columns = _columns(tree)
        if not columns:
            return tree
        places = columns[rng.choice(sorted(columns))]
        change = rng.choice((_each, _each, _each, _order, _same, _drop, _lists))
        change(_some(places, rng), rng)
    return tree


def _some(places: Column, rng: Random) -> Column:
    return rng.choice((places, [rng.choice(places)], places[: 1 + len(places) // 2], places[-1:]))


def _each(places: Column, rng: Random) -> None:
    kind = rng.randrange(1 << 16)
    for holder, key in places:
        holder[key] = value_like(holder[key], Random(kind))


def _order(places: Column, rng: Random) -> None:
    """The same values in another order: times that go back."""
    values = [holder[key] for holder, key in places]
    rng.shuffle(values)
    for (holder, key), value in zip(places, sorted(values, key=repr, reverse=True), strict=True):
        holder[key] = value


def _same(places: Column, _rng: Random) -> None:
    """One value for all: ids of several requests are the same."""
    holder, key = places[0]
    for other, at in places:
        other[at] = holder[key]


def _drop(places: Column, _rng: Random) -> None:
    for holder, key in reversed(places):
        if isinstance(holder, dict):
            holder.pop(key, None)
        elif key < len(holder):
            del holder[key]


def _lists(places: Column, rng: Random) -> None:
    """Lists without an item, with one, with one too many, backwards; more and fewer records."""
    for holder, _ in places:
        if isinstance(holder, list) and holder:
            keep = rng.choice((0, 1, len(holder) // 2, len(holder)))
            holder[:] = rng.choice((holder[:keep], holder[::-1], [*holder, holder[-1]]))


def value_like(value: Any, rng: Random) -> Any:
    """Another value of the same type, near it or at the edge of what is possible."""
    if isinstance(value, bool) or value is None:
        return rng.choice((True, False, None, 0, 1))
    if isinstance(value, int | float):
        return _number_like(value, rng)
    if isinstance(value, str):
        return _text_like(value, rng)
    if isinstance(value, list):
        return rng.choice(([], value[:1], value * 2, value[::-1], [[]], None))
    return rng.choice(({}, None, [value]))


def _number_like(value: float, rng: Random) -> Any:
    edges: tuple[Any, ...] = (
        *(0, -0.0, -1, 1, 1e-9, 0.1, -value, value + 1, value - 1, value * 2, value / 3),
        *(value * 1e3, value * 1e-3, value * 1e6, value * 1e9, value * 1e12, str(value), None),
        *(math.nan, math.inf, -math.inf, 1e308, 5e-324, 2**31, 2**53 + 1, 2**63, -(2**63), 10**19),
    )
    found = rng.choice(edges)
    as_whole = isinstance(value, int) and isinstance(found, float) and math.isfinite(found)
    return int(found) if as_whole and rng.random() < 0.7 else found


def _text_like(value: str, rng: Random) -> Any:
    if _TIMES.search(value):
        return _TIMES.sub(lambda _: _time_like(rng), value)
    if _NUMBERS.fullmatch(value):
        number = float(value) if "." in value else int(value)
        return str(_number_like(number, rng))
    return rng.choice((
        "", " ", value * 2, value[::-1], value.upper(), value + "\u0301", "\u0661\u0662\u0663",
        "\ufeff" + value, value + "\0", "\u202e" + value, value + "\n" + value, "0", "-1", "nan",
        "a" * 5_000, "\U0001f600" * 9, None, 7, f'"{value}"', f"{value},{value}",
    ))  # fmt: skip


def _time_like(rng: Random) -> str:
    return rng.choice((
        "2026-02-30 00:00:00", "0001-01-01 00:00:00", "9999-12-31T23:59:59.999999999", "2026-01-31",
        "2026-01-31T11:59:60Z", "2026-01-31T11:59:58+99:99", "2026-01-31T11:59:58-14:00", "-1",
        "1969-12-31 23:59:59", "2026-01-31 11:59", "12:00:00", "1767225600", "31/01/2026 10:00:00",
        "2026-01-31T11:59:58.1234567890123456789", "\u0662\u0660\u0662\u0666-01-31 00:00:00",
        "2026-W05-6", "20260131T115958Z", "2024-05-10 00:00:00.009930+00:00", "", "NaT",
    ))  # fmt: skip


# ---- by the form of the file -------------------------------------------------------------------


def document(content: bytes, rng: Random) -> bytes:
    return json.dumps(typed_tree(json.loads(content), rng)).encode()


def lines(content: bytes, rng: Random) -> bytes:
    records = [json.loads(line) for line in content.splitlines()]
    changed = typed_tree(records, rng)
    return b"".join(json.dumps(record).encode() + b"\n" for record in changed)


def comma_separated(content: bytes, rng: Random) -> bytes:
    records = list(csv.DictReader(io.StringIO(content.decode())))
    names = list(records[0])
    changed = [record for record in typed_tree(records, rng) if isinstance(record, dict)]
    kept = [name for name in names if any(name in record for record in changed)]
    out = io.StringIO()
    writer = csv.DictWriter(out, kept or names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(changed)
    return out.getvalue().encode("utf-8", "surrogatepass")


def text(content: bytes, rng: Random) -> bytes:
    """Times and numbers of a log become others; lines come twice, or in another order."""
    rows = content.decode().splitlines(keepends=True)
    pattern = rng.choice((_TIMES, _NUMBERS, _NUMBERS))
    share = rng.choice((0.02, 0.2, 1))
    place = rng.randrange(6)
    kind = rng.randrange(1 << 16)

    def other(found: re.Match[str]) -> str:
        is_there = place in {5, len(found.string[: found.start()].split()) % 5}
        if not is_there or rng.random() > share:
            return found[0]
        return str(_text_like(found[0], Random(kind)))

    rows = [pattern.sub(other, row) for row in rows]
    if rng.random() < 0.3:
        at = rng.randrange(len(rows))
        rows[at:at] = rng.choice(([rows[at]], rows[:at], rows[:0]))
    if rng.random() < 0.2:
        rows = rows[::-1]
    return "".join(rows).encode("utf-8", "surrogatepass")


def text_or_lines(content: bytes, rng: Random) -> bytes:
    return lines(content, rng) if content.startswith(b"{") else text(content, rng)


_DUMPED = re.compile(rb"(?<=K)[\x00-\xff]|(?<=M)[\x00-\xff]{2}|(?<=G)[\x00-\xff]{8}")


def dumped(content: bytes, rng: Random) -> bytes:
    """A pickle whose numbers are others, by their bytes: its classes are none of ours."""
    places = list(_DUMPED.finditer(content))
    made = bytearray(content)
    for found in rng.sample(places, min(len(places), rng.choice((1, 3, 30)))):
        size = found.end() - found.start()
        made[found.start() : found.end()] = bytes(
            rng.choice(((0,) * size, (255,) * size, [rng.randrange(256) for _ in range(size)]))
        )
    return bytes(made)


# ---- cases -------------------------------------------------------------------------------------

_OF_RESULTS: dict[str, Mutation] = {
    ".json": document,
    ".jsonl": text_or_lines,
    ".txt": text,
    ".pkl": dumped,
    ".csv": comma_separated,
}


def _suffix(name: str) -> str:
    return name[name.rindex(".") :]


def _typed_case(name: str, target: str, change: Mutation, commands: Sequence[str]) -> FuzzCase:
    group = "results and traces by type"
    return FuzzCase(name, target, change, commands, group=group, bytes_share=0)


def typed_cases() -> list[FuzzCase]:
    """Results and traces of every format."""
    cases = []
    for name, (source, target, _) in RESULTS.items():
        imported = f"simulate import {source} --out imported"
        form = name.split(maxsplit=1)[0]
        validate = "calibrate validate imported/scenario.yaml imported/measured.jsonl.gz"
        commands = (
            # A fit takes seconds.
            *[f"{imported} && simulate run imported/scenario.yaml --format json"] * 12,
            *[f"{imported} --from {form} && {validate}"] * 2,
            f"calibrate fit {source} --out fitted",
        )
        change = _OF_RESULTS[_suffix(target)]
        cases.append(_typed_case(f"typed results {name}", target, change, commands))
    for name, trace in TRACES.items():
        commands = (
            f"simulate run {scenario_of(trace)} --check --format json",
            f"simulate workload {trace.file} --from {trace.format}",
        )
        change = comma_separated if trace.file.endswith(".csv") else lines
        cases.append(_typed_case(f"typed trace {name}", trace.file, change, commands))
    return cases
