"""Joins the logs of parts of a run, each of some replicas, to the log of the whole run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from sim.core.arrays import Int64
from sim.runlog.columns import RequestColumns, RunLog, StepColumns, TokenGaps

_Columns = TypeVar("_Columns", RequestColumns, StepColumns)


@dataclass(frozen=True, slots=True)
class LogPart:
    """The log of some of the replicas, and what puts its rows between those of the others.

    Attributes:
        log: its rows; `meta` has the number of simulated steps alone.
        submitted_ns: when each request reached its server; shape [num_requests].
        number: of each request among all of the run, by arrival; shape [num_requests].
        ended_ns: when each row of steps was processed; shape [num_runs].
        servers: the numbers of its servers, or ranks, in ascending order.
        num_gaps: how many token gaps each of these servers has.
    """

    log: RunLog
    submitted_ns: Int64
    number: Int64
    ended_ns: Int64
    servers: tuple[int, ...]
    num_gaps: tuple[int, ...]


def joined(parts: Sequence[LogPart], num_ranks: int, meta: Mapping[str, object]) -> RunLog:
    """The log that one process would have built.

    One process handles what happens at the same time in a fixed order: requests in order of
    arrival, results of steps in order of replicas, and of the ranks within a replica.

    Args:
        parts: the parts; together they have every replica once.
        num_ranks: ranks of each replica.
        meta: the meta data of the whole run, but for `simulated_steps`.
    """
    logs = [part.log for part in parts]
    submitted = np.lexsort((_all(parts, "number"), _all(parts, "submitted_ns")))
    replica = np.concatenate([log.steps.replica for log in logs]) // num_ranks
    stepped = np.lexsort((replica, _all(parts, "ended_ns")))
    gaps, gap_at_ns = _gaps(parts)
    num_steps = sum(_simulated_steps(log) for log in logs)
    return RunLog(
        requests=_in_order(RequestColumns, [log.requests for log in logs], submitted),
        steps=_in_order(StepColumns, [log.steps for log in logs], stepped),
        token_gaps=gaps,
        gap_at_ns=gap_at_ns,
        meta={**meta, "simulated_steps": num_steps},
    )


def _all(parts: Sequence[LogPart], name: str) -> Int64:
    return np.concatenate([getattr(part, name) for part in parts])


def _simulated_steps(log: RunLog) -> int:
    number = log.meta["simulated_steps"]
    return number if isinstance(number, int) else 0


def _in_order(kind: type[_Columns], parts: Sequence[_Columns], order: Int64) -> _Columns:
    """The rows of all parts, in this order."""
    columns: dict[str, Any] = {}
    for field in fields(kind):
        pieces = [getattr(part, field.name) for part in parts]
        if isinstance(pieces[0], list):
            rows = [row for piece in pieces for row in piece]
            columns[field.name] = [rows[place] for place in order.tolist()]
        else:
            columns[field.name] = np.concatenate(pieces)[order]
    return kind(**columns)


def _gaps(parts: Sequence[LogPart]) -> tuple[TokenGaps, Int64 | None]:
    """The token gaps of all servers, server by server, and when they ended."""
    found: dict[int, tuple[LogPart, slice]] = {}
    for part in parts:
        start = 0
        for server, size in zip(part.servers, part.num_gaps, strict=True):
            found[server] = part, slice(start, start + size)
            start += size
    ordered = [found[server] for server in sorted(found)]
    gap_ns = np.concatenate([part.log.token_gaps.gap_ns[rows] for part, rows in ordered])
    count = np.concatenate([part.log.token_gaps.count[rows] for part, rows in ordered])
    ended = [part.log.gap_at_ns[rows] for part, rows in ordered if part.log.gap_at_ns is not None]
    return TokenGaps(gap_ns, count), np.concatenate(ended) if ended else None
