"""Changes files: values get other types, numbers any size, names markup, escapes and modules."""

import gzip
import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlencode

from sim.scenario.schema import Scenario

# A module beside every input; its code writes the file `TRAP`. No file of others may make it run.
MODULE, TRAP = "evilmod", "trap"
_LONG = 100_000

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    0.5,
    -0.5,
    1e-300,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    2**31,
    2**32,
    2**53,
    2**61,
    2**62,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**18,
    10**30,
    -(10**30),
    10**7,
    10**9,
    4.6e9,
    8.25e9,
    "",
    " ",
    "x",
    "0",
    "7",
    "1e5",
    "-1",
    "nan",
    "null",
    "[]",
    f"{MODULE}:Policy",
    f"{MODULE}.sub:Policy",
    "os:system",
    "sim.cli:main",
    "../../etc/passwd",
    "/dev/zero",
    "/dev/full",
    "/dev/null",
    "\x1b[31mred\x1b[0m",
    "\r\n\t",
    "\0",
    "\u202ereversed",
    "<script>alert(1)</script>",
    "<img src=http://x/y onerror=z>",
    "=1+1",
    "@x",
    "[bold]b[/bold]",
    "%s%n{0}{x}",
    "é" * 40,
    "\U0001f600",
    "\ud800",
    "a" * 300,
    "b" * _LONG,
    "9" * 5_000,
    [],
    {},
    [[]],
    [0],
    [None],
    ["x"],
    {"x": 1},
    {"kind": "x"},
    [1, 2, 3],
    [[1, 2], [3, 4]],
    {"": {}},
)
WORDS = (
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\x1b[2J",
    b"\x1f\x8b",
    b"\r",
    b"\n\n",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"'",
    b",",
    b":",
    b"\\",
    b"-",
    b"1e999",
    b"999999999999999999999999",
    b"NaN",
    b"Infinity",
    b"null",
    b"evilmod:Policy",
    b"&a",
    b"*a",
    b"<<: ",
    b"!!python/object/apply:os.system",
    b"\t",
    "\u2028".encode(),
    "\u202e".encode(),
    b"=cmd|",
    b"((((((((",
    b"\\x",
    b"007",
    b"'\\'",
)

Tree = Any


def mutated_tree(tree: Tree, rng: Random) -> Tree:
    """A copy of JSON data with one to four changes."""
    made = json.loads(json.dumps(tree))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        made = _changed(made, rng)
    return made


def _changed(tree: Tree, rng: Random) -> Tree:
    places = _places(tree)
    if not places:
        return _value(rng)
    holder, key = rng.choice(places)
    rng.choice(_CHANGES)(holder, key, rng)
    return tree


def _value(rng: Random) -> Any:
    """One of the values, to itself: a later change may change what is in it."""
    return deepcopy(rng.choice(VALUES))


def _places(tree: Tree) -> list[tuple[Any, Any]]:
    """Every list and mapping of the tree, with each of its keys; of long lists a few."""
    found: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            found += [(each, key) for key in each]
            todo += each.values()
        elif isinstance(each, list):
            shown = range(len(each)) if len(each) < 8 else (0, 1, len(each) // 2, len(each) - 1)
            found += [(each, place) for place in shown]
            todo += [each[place] for place in shown]
    return found


def _replace(holder: Any, key: Any, rng: Random) -> None:
    holder[key] = _value(rng)


def _name_code(holder: Any, key: Any, _rng: Random) -> None:
    holder[key] = f"{MODULE}:Policy"


def _scale(holder: Any, key: Any, rng: Random) -> None:
    value = holder[key]
    if isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = rng.choice(
            (-value, value + 1, value * 10**9, value * 1e-9, str(value), [value])
        )
    else:
        _replace(holder, key, rng)


def _drop(holder: Any, key: Any, _rng: Random) -> None:
    del holder[key]


def _add(holder: Any, key: Any, rng: Random) -> None:
    if isinstance(holder, dict):
        texts = [value for value in VALUES if isinstance(value, str)]
        name = rng.choice(texts if rng.random() < 0.3 else known_keys())
        holder[name] = _value(rng)
    else:
        holder.insert(key, _value(rng))


@cache
def known_keys() -> list[str]:
    """The names of all keys that a scenario can have, at any place."""
    schema = Scenario.model_json_schema()
    sections = [schema, *schema["$defs"].values()]
    return sorted({key for section in sections for key in section.get("properties", {})})


def _borrow(holder: Any, key: Any, rng: Random) -> None:
    """A value like others of its kind: a number of similar size, or what stands beside it."""
    value = holder[key]
    if isinstance(value, int) and not isinstance(value, bool):
        holder[key] = max(0, rng.choice((value // 10, value * 10, value * 1_000, value - 1)))
    elif isinstance(value, float):
        holder[key] = value * rng.choice((0.0, 1e-3, 0.1, 10, 1e3, 1e6))
    else:
        others = list(holder.values()) if isinstance(holder, dict) else holder
        holder[key] = json.loads(json.dumps(rng.choice(others)))


def _repeat(holder: Any, key: Any, rng: Random) -> None:
    # What has parts is repeated less: four changes could otherwise make a million copies of it.
    has_parts = isinstance(holder[key], (dict, list))
    times = rng.choice((1, 2, 3 if has_parts else 30))
    if isinstance(holder, list):
        holder[key:key] = [holder[key]] * times
    else:
        holder[key] = [holder[key]] * times


def _nest(holder: Any, key: Any, rng: Random) -> None:
    value = holder[key]
    for _ in range(rng.choice((1, 3, 200))):
        value = [value] if rng.random() < 0.5 else {"x": value}
    holder[key] = value


def _swap(holder: Any, key: Any, rng: Random) -> None:
    other = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


_CHANGES: tuple[Callable[[Any, Any, Random], None], ...] = (
    *(_replace, _replace, _replace, _name_code, _scale, _scale, _borrow, _borrow, _borrow),
    *(_drop, _add, _add, _repeat, _nest, _swap),
)


def mutated_bytes(content: bytes, rng: Random) -> bytes:
    """The content, cut, with other bytes, words or parts of itself in some places."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        place = rng.randrange(len(made) + 1)
        match rng.randrange(7):
            case 0:
                made[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                made[place:place] = rng.choice(WORDS)
            case 2:
                del made[place : place + rng.choice((1, 4, 100))]
            case 3:
                made[place:place] = made[place : place + rng.choice((1, 20, 400))] * rng.choice(
                    (1, 9)
                )
            case 4:
                made[place:place] = rng.choice(WORDS) * rng.choice((1, 50, 2_000))
            case 5:
                end = rng.randrange(len(made) + 1)
                made[place : place + 40] = made[end : end + 40]
            case _:
                del made[place:]
    return bytes(made)


def json_file(content: bytes, rng: Random) -> bytes:
    """A document of JSON."""
    return _dump(mutated_tree(json.loads(content), rng))


def json_lines(content: bytes, rng: Random) -> bytes:
    """Lines of JSON; one or several are changed."""
    lines = content.splitlines()
    for _ in range(rng.choice((1, 1, 3))):
        place = rng.randrange(len(lines))
        lines[place] = _dump(mutated_tree(json.loads(lines[place]), rng)).strip()
    if rng.random() < 0.2:
        place = rng.randrange(len(lines))
        lines[place:place] = [lines[place]] * rng.choice((1, 3))
    return b"\n".join(lines) + b"\n"


def table(content: bytes, rng: Random) -> bytes:
    """Comma-separated values."""
    rows = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(rng.choice((1, 2, 6))):
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = str(rng.choice(VALUES))
    return "\n".join(map(",".join, rows)).encode("utf-8", "surrogatepass")


def link(content: bytes, rng: Random) -> bytes:
    """The settings of a link to a playground."""
    settings = mutated_tree(dict(parse_qsl(content.decode())), rng)
    pairs = settings.items() if isinstance(settings, dict) else [("", settings)]
    return urlencode([(key, str(value)) for key, value in pairs], errors="replace").encode()


def by_bytes(content: bytes, rng: Random) -> bytes:
    """Any file, by its bytes alone; sometimes gzipped, and then damaged."""
    if rng.random() < 0.15:
        packed = gzip.compress(content, mtime=0)
        return mutated_bytes(packed, rng) if rng.random() < 0.6 else packed
    return mutated_bytes(content, rng)


def _dump(tree: Tree) -> bytes:
    return json.dumps(tree).encode()
