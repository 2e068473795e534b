"""`simulate workload`: statistics of a scenario's traffic."""

import json as jsonlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from sim.commands.output import print_line, print_table
from sim.report.numbers import number
from sim.scenario.load import load_scenario
from sim.workload.build import build_workload
from sim.workload.stats import WorkloadStats, workload_stats


def describe_workload(
    path: Path, overrides: Sequence[str], *, json: bool, block_size: int | None = None
) -> None:
    """Print rates, lengths and the hit rate of an endless cache with blocks of `block_size`.

    Raises:
        InputError: the scenario or its trace.
    """
    loaded = load_scenario(path, overrides)
    scenario = loaded.scenario
    workload = build_workload(scenario.workload, seed=scenario.seed, base_dir=loaded.base_dir)
    stats = workload_stats(workload, block_size)
    if json:
        print_line(jsonlib.dumps(asdict(stats), indent=2, allow_nan=False))
    else:
        print_table(_table(stats))


def _table(stats: WorkloadStats) -> Table:
    table = Table(box=SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in _flat(asdict(stats)):
        table.add_row(name, "-" if value is None else number(value))
    return table


def _flat(values: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    for name, value in values.items():
        words = name.replace("_pct", " %").replace("_s", " s").replace("_", " ")
        if isinstance(value, dict):
            for statistic, part in value.items():
                yield f"{words} {statistic}", part
        else:
            yield words, value
