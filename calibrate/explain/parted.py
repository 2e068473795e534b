"""Where two runs first do different things."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.core.packed import Line
from sim.tables.table import counted


@dataclass(frozen=True, slots=True)
class Parted:
    """The first step that is not the same in both runs.

    Attributes:
        pool: name of the server's pool; empty without pools.
        server: number of the server, or of the rank, in its pool.
        step: its number on this server.
        before_ns, after_ns: when it was decided; None: this run has no such step.
        before, after: what it computes, in words.
    """

    pool: str
    server: int
    step: int
    before_ns: int | None
    after_ns: int | None
    before: str
    after: str


# From a server's number in the log to its pool, and its number there.
Place = Callable[[int], tuple[str, int]]


def first_parting(
    before: tuple[Sequence[Line], Place], after: tuple[Sequence[Line], Place]
) -> Parted | None:
    """Compare the steps of two runs, server by server, by what they compute and for whom."""
    old, new = (_by_server(steps, place) for steps, place in (before, after))
    found = [_parting(server, old[server], new[server]) for server in sorted({*old, *new})]
    return min(filter(None, found), key=_time_ns, default=None)


def _by_server(steps: Sequence[Line], place: Place) -> defaultdict[tuple[str, int], list[Line]]:
    of_server: defaultdict[tuple[str, int], list[Line]] = defaultdict(list)
    for step in steps:
        of_server[place(step["replica"])].append(step)
    return of_server


def _time_ns(parted: Parted) -> int:
    return min(when for when in (parted.before_ns, parted.after_ns) if when is not None)


def _parting(
    server: tuple[str, int], before: Sequence[Line], after: Sequence[Line]
) -> Parted | None:
    both = min(len(before), len(after))
    ours, theirs = map(_computed, before), map(_computed, after)
    pairs = enumerate(zip(ours, theirs, strict=False))
    step = next((number for number, (one, other) in pairs if one != other), both)
    if step == len(before) == len(after):
        return None
    line, other = (lines[step] if step < len(lines) else None for lines in (before, after))
    return Parted(*server, step, _when_ns(line), _when_ns(other), _words(line), _words(other))


def _computed(step: Line) -> tuple[object, ...]:
    prefill = tuple(tuple(row) for row in step["prefill"])
    return prefill, step["n_decode"], step["decode_crc"]


def _when_ns(step: Line | None) -> int | None:
    return None if step is None else int(step["t_decided_ns"])


def _words(step: Line | None) -> str:
    if step is None:
        return "nothing any more"
    rows: list[list[object]] = step["prefill"]
    parts = []
    if rows:
        tokens = sum(int(str(row[2])) for row in rows)
        named = ", ".join(str(row[0]) for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
        requests = "request" if len(rows) == 1 else "requests"
        parts.append(f"prefill of {counted(tokens, 'token')} ({requests} {named})")
    if step["n_decode"]:
        parts.append(counted(step["n_decode"], "decode row"))
    return " and ".join(parts) or "nothing"
