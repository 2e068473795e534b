"""Summaries, per-request tables and whole result directories on disk."""

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sim.core.atomic import atomic_path
from sim.core.errors import InputError
from sim.report.latencies import Float64, request_table
from sim.report.metrics import Summary
from sim.report.timeline import timeline, write_timeline
from sim.runlog import Int64, RunLog

# Of a run's folder.
SUMMARY, SCENARIO, TIMELINE, REQUESTS = (
    "summary.json", "scenario.json", "timeline.csv", "requests.parquet",
)  # fmt: skip


_CSV_ROWS = 1_000


def summary_json(summary: Summary) -> str:
    """The same summary always gives the same text; only `wall_seconds` differs between runs."""
    return json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_summary(summary: Summary, path: Path) -> None:
    """Raises InputError if the file cannot be written."""
    with atomic_path(path) as beside:
        beside.write_text(summary_json(summary), encoding="utf-8")


def write_requests(log: RunLog, path: Path) -> None:
    """The per-request table, one row a request in order of submission.

    Undefined latencies are empty cells in .csv and nulls in .parquet.

    Raises:
        InputError: neither .csv nor .parquet, or the file cannot be written.
    """
    if path.suffix not in _REQUEST_WRITERS:
        known = " or ".join(_REQUEST_WRITERS)
        raise InputError(f"{path}: unknown suffix '{path.suffix}', expected {known}")
    with atomic_path(path) as beside:
        _REQUEST_WRITERS[path.suffix](log, beside)


def write_out_dir(
    log: RunLog, summary: Summary, path: Path, scenario: Mapping[str, object]
) -> None:
    """Write a run's folder: what `simulate report` reads, and two pictures.

    That is summary.json, scenario.json (what the scenario says, options applied), timeline.csv,
    requests.parquet, requests.csv and plots/{ttft_cdf,timeline}.png.

    The directory is made if its parent exists. In one that has files already, ours are replaced
    and others left alone. `summary.json` is removed first and comes last, so that wherever it
    exists all files are whole and of one run.

    Raises:
        InputError: `path` is a file, its parent does not exist, or writing failed.
    """
    make_directory(path)
    marker = path / SUMMARY
    try:
        marker.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{marker}: cannot replace: {error.strerror}") from error
    write_requests(log, path / REQUESTS)
    write_requests(log, path / "requests.csv")
    write_timeline(timeline(log), path / TIMELINE)
    with atomic_path(path / SCENARIO) as beside:
        beside.write_text(
            json.dumps(scenario, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    make_directory(path / "plots")
    _write_plots(log, path / "plots")
    write_summary(summary, marker)


def make_directory(path: Path) -> None:
    """Make a folder unless it exists. Raises InputError if it cannot be made."""
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError:
        raise InputError(f"{path}: is a file, not a directory") from None
    except FileNotFoundError:
        raise InputError(f"{path}: directory {path.parent} does not exist") from None
    except OSError as error:
        raise InputError(f"{path}: cannot make the directory: {error.strerror}") from error


def _write_plots(log: RunLog, directory: Path) -> None:
    # matplotlib takes half a second to load; only those who want pictures wait for it.
    from sim.report.plots import plot_timeline, plot_ttft_cdf, save_figure

    name = str(log.meta.get("name", "run"))
    save_figure(plot_ttft_cdf({name: log}), directory / "ttft_cdf.png")
    save_figure(plot_timeline(log), directory / "timeline.png")


def _write_csv(log: RunLog, path: Path) -> None:
    table = request_table(log)
    num_rows = len(log.requests.rid)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        # As Python objects, all rows together would take more memory than the run did.
        for first in range(0, num_rows, _CSV_ROWS):
            part = slice(first, first + _CSV_ROWS)
            columns = [_csv_cells(column[part]) for column in table.values()]
            writer.writerows(zip(*columns, strict=True))


def _csv_cells(column: list[str] | Int64 | Float64) -> Sequence[object]:
    if isinstance(column, list):
        return column
    return ["" if math.isnan(value) else value for value in column.tolist()]


def _write_parquet(log: RunLog, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = request_table(log)
    arrays = {
        name: pa.array(column, pa.string() if isinstance(column, list) else None, from_pandas=True)
        for name, column in table.items()
    }
    pq.write_table(pa.table(arrays), path)


_REQUEST_WRITERS: dict[str, Callable[[RunLog, Path], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
