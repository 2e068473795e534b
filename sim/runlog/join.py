"""Joins the logs of parts of a run, each of some replicas, to the log of the whole run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from sim.core.arrays import Int64, NarrowColumn
from sim.runlog.columns import (
    RequestColumns,
    RunLog,
    ServerGaps,
    StepColumns,
    joined_gaps,
)


@dataclass(frozen=True, slots=True)
class LogPart:
    """The log of some of the replicas, and what puts its rows between those of the others.

    It is small, because it goes from process to process, and `joined` takes its columns out, so
    that none is in memory twice.

    Attributes:
        requests, steps: columns by name; texts are lists.
        gaps: the token gaps by number of the server, or rank.
        order: columns by name: `submitted_ns` is when each request reached its server, `number`
            counts the requests of all parts in order of arrival, and `ended_ns` is when each row
            of steps was processed.
        num_steps: how many steps were simulated.
    """

    requests: dict[str, NarrowColumn | list[str]]
    steps: dict[str, NarrowColumn]
    gaps: dict[int, ServerGaps]
    order: dict[str, NarrowColumn]
    num_steps: int

    @classmethod
    def of(cls, log: RunLog, gaps: dict[int, ServerGaps], **order: Int64) -> "LogPart":
        """The part with the requests and steps of a log, and these gaps; see the attributes."""
        requests = {
            field.name: _stored(getattr(log.requests, field.name))
            for field in fields(RequestColumns)
        }
        names = [field.name for field in fields(StepColumns)]
        num_steps = log.meta["simulated_steps"]
        return cls(
            requests,
            dict(zip(names, log.steps.stored(), strict=True)),
            gaps,
            {name: NarrowColumn.of(column) for name, column in order.items()},
            num_steps if isinstance(num_steps, int) else 0,
        )


def _stored(values: Any) -> NarrowColumn | list[str]:
    return values if isinstance(values, list) else NarrowColumn.of(values)


def joined(parts: Sequence[LogPart], num_ranks: int, meta: Mapping[str, object]) -> RunLog:
    """The log that one process would have built. The parts are empty afterwards.

    One process handles what happens at the same time in a fixed order: requests in order of
    arrival, results of steps in order of replicas, and of the ranks within a replica. The parts
    together have every replica once; `meta` has all but `simulated_steps`.
    """

    def ordering(name: str) -> Int64:
        return _joined([part.order.pop(name) for part in parts])

    submitted = np.lexsort((ordering("number"), ordering("submitted_ns")))
    replica = _joined([part.steps["replica"] for part in parts]) // num_ranks
    stepped = np.lexsort((replica, ordering("ended_ns")))
    del replica
    requests: dict[str, Any] = {
        name: _request_column([part.requests.pop(name) for part in parts], submitted)
        for name in list(parts[0].requests)
    }
    steps = [
        NarrowColumn.of(_joined([part.steps.pop(name) for part in parts])[stepped])
        for name in list(parts[0].steps)
    ]
    # Server by server.
    gaps_of = {server: gaps for part in parts for server, gaps in part.gaps.items()}
    gaps, gap_at_ns = joined_gaps([gaps_of[server] for server in sorted(gaps_of)])
    return RunLog(
        requests=RequestColumns(**requests),
        steps=StepColumns.narrow(steps),
        token_gaps=gaps,
        gap_at_ns=gap_at_ns,
        meta={**meta, "simulated_steps": sum(part.num_steps for part in parts)},
    )


def _joined(columns: Sequence[NarrowColumn]) -> Int64:
    return NarrowColumn.joined(columns).widened()


def _request_column(columns: Sequence[Any], order: Int64) -> Int64 | list[str]:
    """The rows of all parts, in this order."""
    if isinstance(columns[0], list):
        texts = [text for column in columns for text in column]
        return [texts[place] for place in order.tolist()]
    rows: Int64 = _joined(columns)[order]
    return rows
