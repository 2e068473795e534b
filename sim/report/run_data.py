"""Reads a finished run from its folder, for its report."""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError
from sim.core.messages import describe
from sim.core.packed import read_file, read_json_object
from sim.core.request import Status
from sim.core.units import MAX_TIME_NS, NS_PER_MS, NS_PER_S
from sim.metrics.pools import Phases, handovers_of, pools_meta
from sim.metrics.summary_type import check_summary
from sim.report.figures.run import RunData
from sim.report.run_folder import (
    FLEET,
    REQUESTS,
    SCENARIO,
    SUMMARY,
    TIMELINE,
    read_fleet,
    read_timeline,
    timeline_name,
)
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog, StepColumns, TokenGaps
from sim.scenario.report_section import ReportSection

_TEXTS = ("rid", "tenant", "status")
_ARRIVAL = "arrival_s"
_TIMES = (_ARRIVAL, "ttft_ms", "e2e_latency_ms", "queue_time_ms")
_COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "retractions", "preemptions", "aged",
           "replica")  # fmt: skip
# Only runs with a host tier have this column.
_HOST_COUNT = "host_cached_tokens"
# Only runs with handovers have these.
_PHASES = Phases._fields
_OF_HANDOVERS = (("prefill_replica", "server"), ("sent_tokens", "int"))
_HANDOVERS = (*_PHASES, *(name for name, _ in _OF_HANDOVERS))
_ANEW = "simulate run with the same --out writes it anew"


def read_run(folder: Path) -> RunData:
    """Read what `simulate run --out` wrote."""
    try:
        summary = read_json_object(folder / SUMMARY)
        check_summary(summary, str(folder / SUMMARY))
        scenario = read_json_object(folder / SCENARIO)
        section = scenario.get("report")
        try:
            ReportSection.model_validate({} if section is None else section)
        except ValidationError:
            raise InputError(f"{folder / SCENARIO}: report: is no such section") from None
        timeline = read_timeline(folder / TIMELINE)
        log = _log(folder / REQUESTS)
        log = replace(log, meta=pools_meta(summary.get("pools", {})))
        pools = {
            name: read_timeline(folder / timeline_name(name)) for name in summary.get("pools", {})
        }
        fleet = read_fleet(folder / FLEET)
    except InputError as error:
        raise InputError(f"{error} ({_ANEW})") from None
    return RunData(scenario, summary, log, timeline, pools, fleet)


def _log(path: Path) -> RunLog:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(io.BytesIO(read_file(path)))
        known = {*_TEXTS, *_TIMES, *_COUNTS, *_HANDOVERS, _HOST_COUNT}
        table = parquet.read([name for name in parquet.schema_arrow.names if name in known])
        # Damaged files can have texts that are no UTF-8, and places beyond the end.
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    texts = {name: _column(table, name, path, "str") for name in _TEXTS}
    times = {
        name: np.array(_column(table, name, path, "stamp" if name == _ARRIVAL else "float"))
        for name in _TIMES
    }
    counts = {name: np.array(_column(table, name, path, "int")) for name in _COUNTS}
    counts[_HOST_COUNT] = np.zeros(len(table), dtype=np.int64)
    if _HOST_COUNT in table.column_names:
        counts[_HOST_COUNT] += np.array(_column(table, _HOST_COUNT, path, "int"))
    nothing: Int64 = np.zeros(0, dtype=np.int64)
    steps = StepColumns(**{column.name: nothing for column in fields(StepColumns)})
    log = RunLog(_requests(texts, times, counts), steps, TokenGaps(nothing, nothing))
    if set(_HANDOVERS).isdisjoint(table.column_names):
        return log
    parts = Phases(*(np.array(_column(table, name, path, "float")) for name in _PHASES))
    source, sent = (np.array(_column(table, name, path, kind)) for name, kind in _OF_HANDOVERS)
    return replace(log, handovers=handovers_of(log.requests, parts, source, sent))


def _column(table: Any, name: str, path: Path, kind: str) -> list[Any]:
    """A column's values, of which each is of this kind; NaN for a time that never was."""
    if table.column_names.count(name) != 1:
        raise InputError(f"{path}: {name}: there is no such column, or two")
    values: list[Any] = table.column(name).to_pylist()
    if kind == "float":
        values = [math.nan if value is None else value for value in values]
    words, is_good = _KINDS[kind]
    bad = next((row for row, value in enumerate(values) if not is_good(value)), None)
    if bad is not None:
        what = f"row {bad + 1} has {describe(values[bad])}, not {words}"
        raise InputError(f"{path}: {name}: {what}")
    return values


def _is_time(value: object) -> bool:
    return isinstance(value, float) and not abs(value) > _LONGEST


_LONGEST = MAX_TIME_NS / NS_PER_S
_MOST = 1 << 40
# For each kind of value its name in errors, and a test.
_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("text", lambda value: isinstance(value, str)),
    "float": ("a time", _is_time),
    "stamp": ("a time of 0 or more", lambda value: _is_time(value) and value >= 0),
    "int": ("a whole number", lambda value: type(value) is int and 0 <= value <= _MOST),
    "server": (
        "a whole number from -1 on",
        lambda value: type(value) is int and -1 <= value <= _MOST,
    ),
}


def _requests(
    texts: Mapping[str, list[str]], times: Mapping[str, Float64], counts: Mapping[str, Int64]
) -> RequestColumns:
    """The requests, with time stamps from latencies. Priorities are 0: the table has none."""
    arrival_ns = np.rint(times[_ARRIVAL] * NS_PER_S).astype(np.int64)
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
        verify_steps=np.zeros(len(arrival_ns), dtype=np.int64),
        drafted_tokens=np.zeros(len(arrival_ns), dtype=np.int64),
        accepted_tokens=np.zeros(len(arrival_ns), dtype=np.int64),
        **counts,
    )


def _stamps(arrival_ns: Int64, latency_ms: Float64) -> Int64:
    happened = ~np.isnan(latency_ms)
    latency_ns = np.rint(np.where(happened, latency_ms, 0.0) * NS_PER_MS).astype(np.int64)
    return np.where(happened, arrival_ns + latency_ns, NOT_YET_NS)
