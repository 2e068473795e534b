"""Reads a finished run from its folder, for its report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError
from sim.core.request import Status
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.metrics.timeline import Timeline
from sim.report.run_folder import REQUESTS, SCENARIO, SUMMARY, TIMELINE
from sim.report.timeline_file import read_timeline
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog, StepColumns, TokenGaps

_TEXTS = ("rid", "tenant", "status")
_TIMES = ("arrival_s", "ttft_ms", "e2e_latency_ms", "queue_time_ms")
_COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "retractions", "preemptions", "aged",
           "replica")  # fmt: skip
# Only runs with a host tier have this column.
_HOST_COUNT = "host_cached_tokens"
_ANEW = "simulate run with the same --out writes it anew"


@dataclass(frozen=True, slots=True)
class RunData:
    """The contents of a run's folder.

    Attributes:
        scenario: the scenario's keys and values, with `--set` options applied.
        summary: as `simulate run` prints it.
        log: a run log with the requests, but no steps.
        timeline: the steps, summed up over time.
    """

    scenario: Mapping[str, Any]
    summary: Mapping[str, Any]
    log: RunLog
    timeline: Timeline


def read_run(folder: Path) -> RunData:
    """Read what `simulate run --out` wrote.

    Raises:
        InputError: a file is missing, damaged, or of an older version.
    """
    summary = _mapping(folder / SUMMARY)
    scenario = _mapping(folder / SCENARIO)
    try:
        found = read_timeline(folder / TIMELINE)
    except (OSError, ValueError) as error:
        raise _damaged(folder / TIMELINE, error) from error
    return RunData(scenario, summary, _log(folder / REQUESTS), found)


def _mapping(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: is not what a run writes ({_ANEW})")
    return content


def _log(path: Path) -> RunLog:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            parquet = pq.ParquetFile(file)
            known = {*_TEXTS, *_TIMES, *_COUNTS, _HOST_COUNT}
            table = parquet.read([name for name in parquet.schema_arrow.names if name in known])
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    missing = [n for n in (*_TEXTS, *_TIMES, *_COUNTS) if n not in table.column_names]
    if missing:
        raise InputError(f"{path}: has no column {missing[0]} ({_ANEW})")
    texts = {name: table.column(name).to_pylist() for name in _TEXTS}
    times = {name: np.array(table.column(name).to_pylist(), dtype=np.float64) for name in _TIMES}
    counts = {name: np.array(table.column(name).to_pylist(), dtype=np.int64) for name in _COUNTS}
    counts[_HOST_COUNT] = np.zeros(len(table), dtype=np.int64)
    if _HOST_COUNT in table.column_names:
        counts[_HOST_COUNT] += np.array(table.column(_HOST_COUNT).to_pylist(), dtype=np.int64)
    nothing: Int64 = np.zeros(0, dtype=np.int64)
    steps = StepColumns(**{field.name: nothing for field in fields(StepColumns)})
    return RunLog(_requests(texts, times, counts), steps, TokenGaps(nothing, nothing))


def _requests(
    texts: Mapping[str, list[str]], times: Mapping[str, Float64], counts: Mapping[str, Int64]
) -> RequestColumns:
    """The requests, with time stamps from latencies. Priorities are 0: the table has none."""
    arrival_ns = np.rint(times["arrival_s"] * NS_PER_S).astype(np.int64)
    finished = np.array([status == Status.FINISHED.value for status in texts["status"]])
    finish_ns = _stamps(arrival_ns, times["e2e_latency_ms"])
    return RequestColumns(
        rid=texts["rid"],
        tenant=texts["tenant"],
        status=texts["status"],
        arrival_ns=arrival_ns,
        scheduled_ns=_stamps(arrival_ns, times["queue_time_ms"]),
        first_token_ns=_stamps(arrival_ns, times["ttft_ms"]),
        finish_ns=np.where(finished, finish_ns, NOT_YET_NS),
        priority=np.zeros(len(arrival_ns), dtype=np.int64),
        warm_up=np.zeros(len(arrival_ns), dtype=np.int64),
        **counts,
    )


def _stamps(arrival_ns: Int64, latency_ms: Float64) -> Int64:
    happened = ~np.isnan(latency_ms)
    latency_ns = np.rint(np.where(happened, latency_ms, 0.0) * NS_PER_MS).astype(np.int64)
    return np.where(happened, arrival_ns + latency_ns, NOT_YET_NS)


def _damaged(path: Path, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())
    return InputError(f"{path}: cannot be read: {reason} ({_ANEW})")
