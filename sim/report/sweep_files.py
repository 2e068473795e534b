"""The results of a sweep on disk: results.parquet, results.csv and results.json."""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.core.atomic import atomic_path
from sim.core.errors import InputError
from sim.report.sweep_results import Row, SweepResults

if TYPE_CHECKING:
    import pyarrow as pa

RESULTS = "results.json"
_NAMES = (RESULTS, "results.csv", "results.parquet")


def sweep_json(results: SweepResults) -> str:
    """Equal results give equal text."""
    content = {
        "name": results.name,
        "keys": results.keys,
        "scenario": results.scenario,
        "settings": [asdict(setting) for setting in results.settings()],
        "points": results.rows,
        "point_files": results.files,
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def remove_results(folder: Path) -> None:
    """Remove the results of an earlier sweep, so that none are taken for those of this one.

    Raises:
        InputError: one cannot be removed.
    """
    for name in _NAMES:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{folder / name}: cannot replace: {error.strerror}") from error


def write_results(results: SweepResults, folder: Path) -> None:
    """Write all three; results.json comes last: where it is, the others are whole.

    Nulls are empty cells in .csv; values that are lists or mappings are JSON text there, and in
    .parquet so are all values of a column that has values of several types.

    Raises:
        InputError: writing failed.
    """
    with atomic_path(folder / "results.parquet") as beside:
        _write_parquet(results, beside)
    with atomic_path(folder / "results.csv") as beside:
        write_csv(results.rows, beside)
    with atomic_path(folder / RESULTS) as beside:
        beside.write_text(sweep_json(results), encoding="utf-8")


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """A header and a line a row; all rows have the same keys in the same order."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow([_cell(value) for value in row.values()])


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, bool | list | tuple | dict) else value


def _write_parquet(results: SweepResults, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: _column([row[name] for row in results.rows]) for name in results.rows[0]}
    pq.write_table(pa.table(columns), path)


def _column(values: Sequence[Any]) -> "pa.Array":
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return pa.array([None if value is None else float(value) for value in values])
    if len(kinds) <= 1 and kinds <= {bool, int, float, str}:
        return pa.array(values, pa.string() if not kinds else None)
    return pa.array([None if value is None else json.dumps(value) for value in values])
