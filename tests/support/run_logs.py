"""Makes run logs from a few columns, without a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import ArrayLike

from sim.core.request import Status
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog, StepColumns, TokenGaps

_TIMES = ("arrival_ns", "scheduled_ns", "first_token_ns", "finish_ns")


def request_columns(**columns: Sequence[object]) -> RequestColumns:
    """Columns of requests; those that are not given have default values.

    By default times are `NOT_YET_NS`, other numbers are 0, and requests are called r0, r1, and so
    on. A request with a `finish_ns` is finished, another one is waiting.
    """
    size = len(next(iter(columns.values()))) if columns else 0
    made: dict[str, object] = {name: list(values) for name, values in columns.items()}
    for column in fields(RequestColumns):
        if column.name not in {"rid", "tenant", "status"}:
            absent = NOT_YET_NS if column.name in _TIMES else 0
            made[column.name] = np.array(made.get(column.name, [absent] * size), dtype=np.int64)
    made.setdefault("rid", [f"r{row}" for row in range(size)])
    made.setdefault("tenant", [""] * size)
    finish_ns = np.asarray(made["finish_ns"])
    made.setdefault(
        "status",
        [(Status.FINISHED if at >= 0 else Status.WAITING).value for at in finish_ns.tolist()],
    )
    return RequestColumns(**made)  # type: ignore[arg-type]


def step_columns(**columns: ArrayLike) -> StepColumns:
    """Columns of steps; those that are not given are 0, but `num_steps` is 1.

    Every step of a row has the same `used_tokens`.
    """
    made = {name: np.asarray(values, dtype=np.int64) for name, values in columns.items()}
    size = len(next(iter(made.values()))) if made else 0
    for column in fields(StepColumns):
        fill = 1 if column.name == "num_steps" else 0
        made.setdefault(column.name, np.full(size, fill, dtype=np.int64))
    if "used_token_steps" not in columns:
        made["used_token_steps"] = made["used_tokens"] * made["num_steps"]
    return StepColumns(**made)


def run_log(
    requests: RequestColumns,
    steps: StepColumns | None = None,
    *,
    gaps: Sequence[tuple[int, int]] = (),
    meta: Mapping[str, object] | None = None,
) -> RunLog:
    """A log of these columns; `gaps` are pairs of a token gap in ns and its count."""
    pairs = np.array(gaps, dtype=np.int64).reshape(-1, 2)
    return RunLog(
        requests=requests,
        steps=step_columns() if steps is None else steps,
        token_gaps=TokenGaps(gap_ns=pairs[:, 0], count=pairs[:, 1]),
        meta={} if meta is None else meta,
    )
