"""What a run writes to disk: its summary, its table of requests, or a whole folder."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.core.errors import InputError
from sim.core.files import atomic_path, json_text, make_directory, remove_file, write_text
from sim.core.messages import describe
from sim.core.units import MAX_TIME_NS, NS_PER_S
from sim.metrics.pools import phases
from sim.metrics.request_table import request_table
from sim.metrics.summary import Summary
from sim.metrics.timeline import Timeline, pool_timeline, timeline
from sim.runlog import RunLog
from sim.runlog.servers import FleetEvent, FleetLog, ReplicaState
from sim.tables.csv_table import CsvTable
from sim.tables.table import Table, columns_of

# Files of a run's folder.
SUMMARY, SCENARIO, TIMELINE, REQUESTS, FLEET = (
    "summary.json", "scenario.json", "timeline.csv", "requests.parquet", "fleet.csv",
)  # fmt: skip
_CSV_ROWS = 1_000


def timeline_name(pool: str) -> str:
    """The file with the timeline of a server pool."""
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

    The directory is made if its parent exists. If it exists already, files that a run writes are
    replaced and others are left alone. `summary.json` is removed first and written last, so if it
    exists, all files are complete and of one run.
    """
    make_directory(path)
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
    make_directory(path / "plots")
    _write_plots(log, path / "plots")
    # How long the simulation took is no result: a run that is killed and run again writes the same.
    lasting = {name: value for name, value in summary.items() if name != "wall_seconds"}
    write_text(path / SUMMARY, summary_json(lasting))


def _write_plots(log: RunLog, directory: Path) -> None:
    # matplotlib takes half a second to load; a run without --out does not wait for it.
    from sim.report.figures.render import save_picture
    from sim.report.figures.run_logs import timeline_picture, ttft_picture

    name = str(log.meta.get("name", "run"))
    save_picture(ttft_picture({name: log}), directory / "ttft_cdf.png")
    save_picture(timeline_picture(timeline(log), log), directory / "timeline.png")
    measured = log.measured()
    parts = phases(measured)
    if parts is not None:
        from sim.report.figures.run_logs import draw_ttft_parts, has_parts

        if has_parts(measured.requests, parts):
            drawn = draw_ttft_parts(measured.requests, parts)
            save_picture(drawn.picture, directory / "ttft_parts.png")


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
