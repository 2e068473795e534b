"""A run over time as the file timeline.csv."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np

from sim.core.arrays import Float64
from sim.metrics.timeline import Timeline
from sim.tables.table import Table, columns_of

_NAMES = [field.name for field in fields(Timeline)]
_DIGITS = 6


def write_timeline(timeline: Timeline, path: Path) -> None:
    """Raises InputError if the file cannot be written."""
    columns = (np.round(column, _DIGITS).tolist() for column in astuple(timeline))
    Table(columns_of(numbers=_NAMES), zip(*columns, strict=True)).write_csv(path)


def read_timeline(path: Path) -> Timeline:
    """What `write_timeline` wrote, to six digits after the point.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a timeline.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if not set(reader.fieldnames or ()).issuperset(_NAMES):
            raise ValueError("does not have the columns of a timeline")
        rows = list(reader)
        return Timeline(*(_column(rows, name) for name in _NAMES))


def _column(rows: Sequence[Mapping[str, str]], name: str) -> Float64:
    try:
        return np.array([float(row[name]) for row in rows], dtype=np.float64)
    except TypeError as error:
        raise ValueError(f"column {name}: a row has no value") from error
