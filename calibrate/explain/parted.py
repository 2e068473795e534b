"""Where two runs first do different things."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.runlog.json_lines import Line
from sim.tables.text import counted


@dataclass(frozen=True, slots=True)
class Parted:
    """The first step that is not the same in both runs.

    Attributes:
        step: its number.
        before_ns, after_ns: when it was decided; None: this run has no such step.
        before, after: what it computes, in words.
    """

    step: int
    before_ns: int | None
    after_ns: int | None
    before: str
    after: str


def first_parting(before: Sequence[Line], after: Sequence[Line]) -> Parted | None:
    """Compare the steps of two runs, one by one, by what they compute and for whom."""
    both = min(len(before), len(after))
    ours, theirs = map(_computed, before), map(_computed, after)
    pairs = enumerate(zip(ours, theirs, strict=False))
    step = next((number for number, (one, other) in pairs if one != other), both)
    if step == len(before) == len(after):
        return None
    line, other = (lines[step] if step < len(lines) else None for lines in (before, after))
    return Parted(step, _when_ns(line), _when_ns(other), _words(line), _words(other))


def _computed(step: Line) -> tuple[object, ...]:
    prefill = tuple(tuple(row) for row in step["prefill"])
    return prefill, step["n_decode"], step["decode_crc"]


def _when_ns(step: Line | None) -> int | None:
    return None if step is None else int(step["t_decided_ns"])


def _words(step: Line | None) -> str:
    if step is None:
        return "the run has ended"
    rows: list[list[object]] = step["prefill"]
    parts = []
    if rows:
        tokens = sum(int(str(row[2])) for row in rows)
        named = ", ".join(str(row[0]) for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
        parts.append(f"prefill of {counted(tokens, 'token')} ({named})")
    if step["n_decode"]:
        parts.append(counted(step["n_decode"], "decode row"))
    return " and ".join(parts) or "nothing"
