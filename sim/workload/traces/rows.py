"""The rows of a trace: columns, which every reader returns, and checks of fields.

Errors of fields name file, line and key.
"""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.core.units import MAX_TIME_NS, NS_PER_MS
from sim.workload import MAX_TOKENS
from sim.workload.prompts import ArrayPrompts, BlockPrompts, EitherPrompts
from sim.workload.traces.files import JsonObject, TextLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The rows of a trace whose next request waits for the answer to the one before.

    Attributes:
        offsets: session s has rows `offsets[s]` to `offsets[s + 1]`.
        pause_ns: time from the answer before to the row's request; that of a session's first row
            means nothing, because it arrives at its `arrival_ns`, but that of a sub-agent's does.
            None: the file does not know pauses.
        history_row: the prompt of a row is what the rows from this one on sent and got, followed by
            its own part; the row itself: the own part is the whole prompt.
        parent_row: for each session, the row whose answer starts it as a sub-agent; -1: it is none.
            None: no session is.
        calls_tool: the rows whose answers end in a tool call. None: the file does not say.
    """

    offsets: Int64
    pause_ns: Int64 | None
    history_row: Int64
    parent_row: Int64 | None = None
    calls_tool: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRows:
    """Rows in file order. Columns have shape [num_rows]; None: the format lacks the column.

    Attributes:
        arrival_ns: all 0 if the file has no times (`has_times`). In a session only that of the
            first row counts.
        known_outputs: the first tokens of each output.
        prompts: an array of lengths if the format has no content of prompts.
        closed_loop: the sessions, if the requests of the file are a closed loop.
        notes: what was estimated or left out, in sentences.
    """

    arrival_ns: Int64
    prompts: BlockPrompts | ArrayPrompts | EitherPrompts | Int64
    output_tokens: Int64
    output_seeds: Int64 | None = None
    known_outputs: ArrayPrompts | None = None
    max_new_tokens: Int64 | None = None
    priorities: Int64 | None = None
    ignore_eos: NDArray[np.bool_] | None = None
    gives_up_ns: Int64 | None = None
    rids: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    sessions: Sequence[str] | None = None
    has_times: bool = True
    closed_loop: Sessions | None = None
    notes: tuple[str, ...] = ()


class IntColumn:
    """A growing column of int64. A value takes eight bytes."""

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._values = array("q", values)
        self.append = self._values.append
        self.extend = self._values.extend

    def __len__(self) -> int:
        return len(self._values)

    @property
    def last(self) -> int:
        return self._values[-1]

    def to_numpy(self) -> Int64:
        return np.array(self._values, dtype=np.int64)


def require_rows(num_rows: int, path: object) -> None:
    if not num_rows:
        raise InputError(f"{path}: holds no requests")


def left_out(number: int, what: str) -> tuple[str, ...]:
    """A note on rows that are not requests; none if there are no such rows."""
    return (f"{number:,} row{'s' if number > 1 else ''} left out: {what}",) if number else ()


_MISSING = object()
_MAX_SHOWN = 40


def whole(
    line: TextLine, row: JsonObject, key: str, *, low: int = 1, high: int = MAX_TOKENS
) -> int:
    """A field that must be a whole number from `low` to `high`, both included."""
    value = row.get(key, _MISSING)
    # isinstance would accept true as a number.
    if type(value) is int and low <= value <= high:
        return value
    raise line.error(key, why_not_whole(value, low, high))


def why_not_whole(value: object, low: int, high: int) -> str:
    if value is _MISSING:
        return "missing"
    if type(value) is not int:
        return f"{shown(value)} is not a whole number"
    return f"{shown(value)} is below {low}" if value < low else f"{shown(value)} is above {high}"


def time_ns(line: TextLine, row: JsonObject, key: str, *, unit_ns: int = NS_PER_MS) -> int:
    """A field that must be a time >= 0 in units of `unit_ns`; returned in ns, rounded."""
    value = row.get(key, _MISSING)
    if value is _MISSING:
        raise line.error(key, "missing")
    # Fractions are read as Decimal, so a float is NaN or Infinity.
    if type(value) is not int and not isinstance(value, Decimal):
        raise line.error(key, f"{shown(value)} is not a finite number")
    if value < 0:
        raise line.error(key, f"{shown(value)} is below 0")
    if value > MAX_TIME_NS // unit_ns:
        raise line.error(key, f"{shown(value)} is above {MAX_TIME_NS // unit_ns}")
    return round(value * unit_ns)


def in_order(line: TextLine, key: str, arrival_ns: int, previous_ns: int) -> int:
    """Return `arrival_ns`, which must not be before the previous row's, nor beyond the clock."""
    if arrival_ns > MAX_TIME_NS:
        raise line.error(key, "is more than 146 years after the first row's")
    if arrival_ns < previous_ns:
        raise line.error(key, "is before the previous row's; rows must be in order of time")
    return arrival_ns


def flag(line: TextLine, row: JsonObject, key: str) -> bool:
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise line.error(key, f"{shown(value)} is not true or false")
    return value


def refuse_unknown(line: TextLine, row: JsonObject, known: Iterable[str]) -> None:
    """Raise InputError for a field that is not known."""
    names = tuple(known)
    for key in row:
        if key not in names:
            close = get_close_matches(key, names, n=1)
            hint = f" (did you mean {close[0]}?)" if close else f"; known: {', '.join(names)}"
            raise line.error(json.dumps(key), f"unknown field{hint}")


def shown(value: object) -> str:
    """The value as JSON, shortened, for an error message."""
    text = ""
    try:
        # Part by part: a list may hold another one many times over, and that one a third.
        for part in _parts(value):
            text += part
            if len(text) > _MAX_SHOWN:
                break
    except (TypeError, ValueError, RecursionError):
        text = text or f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def _parts(value: object) -> Iterator[str]:
    if isinstance(value, Decimal):
        yield str(value)
    else:
        text = isinstance(value, str)
        yield from _ENCODER.iterencode(str(value)[: 2 * _MAX_SHOWN] if text else value)


def _in_words(value: object) -> str:
    return str(value) if isinstance(value, Decimal) else f"a {type(value).__name__}"


_ENCODER = json.JSONEncoder(default=_in_words)
