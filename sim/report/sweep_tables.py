"""The table of a sweep: one row a setting."""

import json
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sim.report.confidence import MeanInterval
from sim.report.numbers import number
from sim.report.sweep_results import METRICS, SEED, SweepResults

_UNDEFINED = "-"


def sweep_table(results: SweepResults) -> Table:
    """Swept values, how many runs, and means with the half-width of their 95 % intervals.

    Key paths are cut to what tells them apart.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    keys = [key for key in results.keys if key != SEED]
    for name in short_names(keys).values():
        table.add_column(escape(name))
    table.add_column("runs", justify="right")
    for label in METRICS:
        table.add_column(label, justify="right")
    for setting in results.settings():
        done = setting.num_points - setting.num_failed
        runs = f"{done}/{setting.num_points}" if setting.num_failed else str(done)
        cells = [interval_text(setting.metrics[metric]) for metric in METRICS.values()]
        table.add_row(*(value_text(setting.settings[key]) for key in keys), runs, *cells)
    return table


def short_names(keys: list[str]) -> Mapping[str, str]:
    """The shortest ends of key paths that are still different from each other."""
    names = {}
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
        others = [other for other in keys if other != key]
        names[key] = next(
            end
            for end in ends
            if not any(f".{other}".endswith(f".{end}") for other in others) or end == key
        )
    return names


def value_text(value: Any) -> str:
    """A value as JSON, names bare; of a whole scheduler its family."""
    if isinstance(value, Mapping) and "family" in value:
        value = str(value["family"])
    return escape(value if isinstance(value, str) else json.dumps(value))


def interval_text(interval: MeanInterval) -> str:
    """`12.3 ± 0.4`, the mean alone without an interval."""
    if interval.mean is None:
        return _UNDEFINED
    if interval.half_width is None:
        return number(interval.mean)
    return f"{number(interval.mean)} ± {number(interval.half_width)}"
