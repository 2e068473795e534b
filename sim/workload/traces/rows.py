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
class TraceRows:
    """Rows in file order. Columns have shape [num_rows]; None: the format lacks the column.

    `prompts` is an array of lengths if the format has no content of prompts.
    """

    arrival_ns: Int64
    prompts: BlockPrompts | ArrayPrompts | EitherPrompts | Int64
    output_tokens: Int64
    output_seeds: Int64 | None = None
    max_new_tokens: Int64 | None = None
    priorities: Int64 | None = None
    ignore_eos: NDArray[np.bool_] | None = None
    rids: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    sessions: Sequence[str] | None = None


class IntColumn:
    """A growing column of int64. A value takes eight bytes."""

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._values = array("q", values)
        self.append = self._values.append
        self.extend = self._values.extend

    def __len__(self) -> int:
        return len(self._values)

    def to_numpy(self) -> Int64:
        return np.array(self._values, dtype=np.int64)


def require_rows(num_rows: int, path: object) -> None:
    if not num_rows:
        raise InputError(f"{path}: holds no requests")
