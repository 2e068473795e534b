"""What a run writes to disk, its summary, tables and folder; and its folder read for a report."""

import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError, describe
from sim.core.files import atomic_path, json_text, make_folder, remove_file, write_text
from sim.core.packed import read_file, read_json_object
from sim.core.request import Status
from sim.core.units import MAX_TIME_NS, NS_PER_MS, NS_PER_S
from sim.metrics.pools import Phases, handovers_of, phases, pools_meta
from sim.metrics.summary import Summary, request_table
from sim.metrics.timeline import Timeline, pool_timeline, timeline
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog, StepColumns, TokenGaps
from sim.runlog.servers import FleetEvent, FleetLog, ReplicaState
from sim.tables.csv_table import CsvTable
from sim.tables.table import Table, columns_of

if TYPE_CHECKING:
    from sim.report.figures.run import RunData

# Files of a run's folder.
SUMMARY, SCENARIO, TIMELINE, REQUESTS, FLEET = (
    "summary.json", "scenario.json", "timeline.csv", "requests.parquet", "fleet.csv",
)  # fmt: skip
_CSV_ROWS = 1_000


def timeline_name(pool: str) -> str:
    return f"timeline-{pool}.csv"


def summary_json(summary: Summary) -> str:
    """The same summary always gives the same text; only `wall_seconds` differs between runs."""
    return json_text(summary)


def write_requests(log: RunLog, path: Path) -> None:
    """Write the table of requests: one row for each request, in order of submission.

    Undefined latencies are empty cells in .csv and nulls in .parquet.
    """
    if path.suffix not in _REQUEST_WRITERS:
        known = " or ".join(_REQUEST_WRITERS)
        raise InputError(f"{path}: unknown suffix '{path.suffix}', expected {known}")
    _REQUEST_WRITERS[path.suffix](log, path)


def write_out_dir(
    log: RunLog, summary: Summary, path: Path, scenario: Mapping[str, object]
) -> None:
    """Write a run's folder: what `simulate report` reads, and two pictures.

    That is summary.json (without `wall_seconds`), scenario.json (with `--set` options applied),
    timeline.csv, requests.parquet, requests.csv and plots/{ttft_cdf,timeline}.png. With server
    pools, also timeline-NAME.csv of each; with handovers, plots/ttft_parts.png; with autoscale,
    fleet.csv.

    The folder is made if its parent exists. If it exists already, files that a run writes are
    replaced and others are left alone. `summary.json` is removed first and written last, so if it
    exists, all files are complete and of one run.
    """
    make_folder(path)
    remove_file(path / SUMMARY)
    write_requests(log, path / REQUESTS)
    write_requests(log, path / "requests.csv")
    write_timeline(timeline(log), path / TIMELINE)
    for pool in log.pools:
        write_timeline(pool_timeline(log, pool), path / timeline_name(pool.name))
    fleet = FleetLog.of(log.meta)
    if fleet is None:
        remove_file(path / FLEET)
    else:
        write_fleet(fleet, path / FLEET)
    write_text(path / SCENARIO, json_text(scenario, indent=1))
    make_folder(path / "plots")
    _write_plots(log, path / "plots")
    # How long the simulation took is no result: a run that is killed and run again writes the same.
    lasting = {name: value for name, value in summary.items() if name != "wall_seconds"}
    write_text(path / SUMMARY, summary_json(lasting))


def _write_plots(log: RunLog, folder: Path) -> None:
    # matplotlib takes half a second to load; a run without --out does not wait for it.
    from sim.report.figures.render import save_picture
    from sim.report.figures.run_logs import timeline_picture, ttft_picture

    name = str(log.meta.get("name", "run"))
    save_picture(ttft_picture({name: log}), folder / "ttft_cdf.png")
    save_picture(timeline_picture(timeline(log), log), folder / "timeline.png")
    measured = log.measured()
    parts = phases(measured)
    if parts is not None:
        from sim.report.figures.run_logs import draw_ttft_parts, has_parts

        if has_parts(measured.requests, parts):
            drawn = draw_ttft_parts(measured.requests, parts)
            save_picture(drawn.picture, folder / "ttft_parts.png")


def _write_csv(log: RunLog, path: Path) -> None:
    table = request_table(log)
    Table(columns_of(numbers=table), _rows(table)).write_csv(path)


def _rows(table: Mapping[str, list[str] | Int64 | Float64]) -> Iterator[tuple[object, ...]]:
    """The rows one by one: all together, as Python objects, would need more memory than the run."""
    num_rows = len(table["rid"])
    for first in range(0, num_rows, _CSV_ROWS):
        parts = (column[first : first + _CSV_ROWS] for column in table.values())
        columns = (part if isinstance(part, list) else part.tolist() for part in parts)
        yield from zip(*columns, strict=True)


def _write_parquet(log: RunLog, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = request_table(log)
    arrays = {
        name: pa.array(column, pa.string() if isinstance(column, list) else None, from_pandas=True)
        for name, column in table.items()
    }
    # pyarrow takes no path that is not UTF-8.
    with atomic_path(path) as beside, beside.open("wb") as file:
        pq.write_table(pa.table(arrays), file)


_REQUEST_WRITERS: dict[str, Callable[[RunLog, Path], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}


_NAMES = [field.name for field in fields(Timeline)]
_DIGITS = 6
_MOST_VALUE = 1e15


def write_timeline(timeline: Timeline, path: Path) -> None:
    """Raises InputError if the file cannot be written."""
    columns = (np.round(column, _DIGITS).tolist() for column in astuple(timeline))
    Table(columns_of(numbers=_NAMES), zip(*columns, strict=True)).write_csv(path)


def read_timeline(path: Path) -> Timeline:
    """What `write_timeline` wrote, to six digits after the point."""
    table = CsvTable(path, may_be_empty=True)
    columns = [np.array(table.numbers(name), dtype=np.float64) for name in _NAMES]
    for name, column in zip(_NAMES, columns, strict=True):
        if column.max(initial=0) > _MOST_VALUE:
            raise InputError(f"{path}: {name}: must be at most {_MOST_VALUE:.0e}")
    return Timeline(*columns)


_AT, _REPLICA, _STATE, _GPUS = "t_s", "replica", "state", "gpus"
_MOST_NUMBER = 1 << 20


def write_fleet(fleet: FleetLog, path: Path) -> None:
    """Raises InputError if the file cannot be written."""
    rows = (
        (event.t_ns / NS_PER_S, event.replica, fleet.gpus[event.replica], event.state.value)
        for event in fleet.events
    )
    Table(columns_of(numbers=[_AT, _REPLICA, _GPUS, _STATE]), rows).write_csv(path)


def read_fleet(path: Path) -> FleetLog | None:
    """What `write_fleet` wrote; None: there is no such file, because the fleet did not change."""
    if not path.exists():
        return None
    table = CsvTable(path)
    at_s, numbers, gpus = (table.numbers(name) for name in (_AT, _REPLICA, _GPUS))
    events: list[FleetEvent] = []
    of_replica: dict[int, int] = {}
    for row, state in enumerate(table.texts(_STATE)):
        if state not in {known.value for known in ReplicaState}:
            raise table.error(row, _STATE, f"is no state of a replica: {describe(state)}")
        for name, value in ((_REPLICA, numbers[row]), (_GPUS, gpus[row])):
            if not value.is_integer() or value > _MOST_NUMBER:
                raise table.error(row, name, f"must be a whole number, got {value:g}")
        t_ns = round(at_s[row] * NS_PER_S)
        if t_ns > MAX_TIME_NS or (events and t_ns < events[-1].t_ns):
            raise table.error(row, _AT, "times must rise, up to 146 years")
        replica = int(numbers[row])
        of_replica[replica] = int(gpus[row])
        events.append(FleetEvent(t_ns, replica, ReplicaState(state)))
    most = max(of_replica, default=-1)
    return FleetLog(events, [of_replica.get(number, 0) for number in range(most + 1)])


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


def read_run(folder: Path) -> "RunData":
    """Read what `simulate run --out` wrote."""
    # A run writes its folder without these.
    from pydantic import ValidationError

    from sim.metrics.summary_type import check_summary
    from sim.report.figures.run import RunData
    from sim.scenario.report_section import ReportSection

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
