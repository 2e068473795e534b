"""Results as pandas data frames."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import pandas as pd

from sim.core.batch import ForwardMode
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.metrics.summary import request_table
from sim.metrics.timeline import Timeline
from sim.runlog import RunLog, StepColumns


def request_frame(log: RunLog) -> pd.DataFrame:
    """One row for each request, in order of submission. Column names end in their unit.

    Columns: rid, arrival_s, ttft_ms, tpot_ms, e2e_latency_ms, queue_time_ms, prompt_tokens,
    cached_tokens, host_cached_tokens (where there is a host tier), output_tokens, retractions,
    preemptions, aged, replica, tenant, status. Latencies that are undefined are NaN.
    """
    return pd.DataFrame(request_table(log))


def step_frame(log: RunLog) -> pd.DataFrame:
    """One row for each run of steps, in the log's order.

    The columns are those of `StepColumns`, but `t_start_s` and `t_end_s` are in seconds,
    `device_ms` and `host_ms` are in milliseconds, and `mode` is extend, decode or mixed.
    """
    columns: dict[str, object] = {}
    for column in fields(StepColumns):
        values = getattr(log.steps, column.name)
        if column.name in {"t_start_ns", "t_end_ns"}:
            columns[column.name.replace("_ns", "_s")] = values / NS_PER_S
        elif column.name in {"device_ns", "host_ns"}:
            columns[column.name.replace("_ns", "_ms")] = values / NS_PER_MS
        elif column.name == "mode":
            columns["mode"] = [ForwardMode(mode).name.lower() for mode in values.tolist()]
        else:
            columns[column.name] = values
    return pd.DataFrame(columns)


def timeline_frame(timeline: Timeline) -> pd.DataFrame:
    """One row for each window; the columns are those of `Timeline`."""
    return pd.DataFrame(asdict(timeline))


def frame_of_rows(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows that all have the same columns in the same order."""
    return pd.DataFrame.from_records([dict(row) for row in rows])


def frame_of_columns(columns: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Columns of values by row; values keep their types, and None is one of them."""
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
