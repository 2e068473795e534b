"""The rows of a trace as columns: what every reader returns."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.workload.prompts import ArrayPrompts, BlockPrompts, EitherPrompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The rows of a trace whose next request waits for the answer to the one before.

    Attributes:
        offsets: session s has rows `offsets[s]` to `offsets[s + 1]`.
        pause_ns: time from the answer before to the row's request; of a session's first row 0,
            because it arrives at its `arrival_ns`. None: the file does not know pauses.
        history_row: the prompt of a row is what the rows from this one on sent and got, followed by
            its own part; the row itself: the own part is the whole prompt.
    """

    offsets: Int64
    pause_ns: Int64 | None
    history_row: Int64


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
        """The value that was added last."""
        return self._values[-1]

    def to_numpy(self) -> Int64:
        return np.array(self._values, dtype=np.int64)


def require_rows(num_rows: int, path: object) -> None:
    if not num_rows:
        raise InputError(f"{path}: holds no requests")


def left_out(number: int, what: str) -> tuple[str, ...]:
    """A note on rows that are not requests; none if there are no such rows."""
    return (f"{number:,} row{'s' if number > 1 else ''} left out: {what}",) if number else ()
