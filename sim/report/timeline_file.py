"""A run over time as the file timeline.csv."""

from dataclasses import astuple, fields
from pathlib import Path

import numpy as np

from sim.core.errors import InputError
from sim.metrics.timeline import Timeline
from sim.tables.csv_table import CsvTable
from sim.tables.table import Table, columns_of

_NAMES = [field.name for field in fields(Timeline)]
_DIGITS = 6
_MOST = 1e15


def write_timeline(timeline: Timeline, path: Path) -> None:
    """Raises InputError if the file cannot be written."""
    columns = (np.round(column, _DIGITS).tolist() for column in astuple(timeline))
    Table(columns_of(numbers=_NAMES), zip(*columns, strict=True)).write_csv(path)


def read_timeline(path: Path) -> Timeline:
    """What `write_timeline` wrote, to six digits after the point.

    Raises:
        InputError: the file cannot be read, or is not a timeline.
    """
    table = CsvTable(path, may_be_empty=True)
    columns = [np.array(table.numbers(name), dtype=np.float64) for name in _NAMES]
    for name, column in zip(_NAMES, columns, strict=True):
        if column.max(initial=0) > _MOST:
            raise InputError(f"{path}: {name}: must be at most {_MOST:.0e}")
    return Timeline(*columns)
