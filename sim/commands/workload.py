"""`simulate workload`: prints statistics of a scenario's traffic."""

import json as jsonlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.commands.output import print_line
from sim.scenario.load import load_scenario
from sim.tables.table import Column, Table
from sim.tables.text import number
from sim.workload.build import build_workload
from sim.workload.stats import WorkloadStats, workload_stats


def describe_workload(
    path: Path, overrides: Sequence[str], *, json: bool, block_size: int | None = None
) -> None:
    """Print rates, lengths, and the hit rate of a cache that never evicts.

    Args:
        path: the scenario.
        overrides: `--set` options.
        json: print JSON instead of a table.
        block_size: tokens in a block of that cache; None: the trace's block size, or 512.

    Raises:
        InputError: the scenario or its trace is invalid.
    """
    loaded = load_scenario(path, overrides)
    scenario = loaded.scenario
    workload = build_workload(scenario.workload, seed=scenario.seed, base_dir=loaded.base_dir)
    stats = workload_stats(workload, block_size)
    if json:
        print_line(jsonlib.dumps(asdict(stats), indent=2, allow_nan=False))
    else:
        print_line("")
        for line in _table(stats).lines():
            print_line(f"  {line}")
        print_line("")


def _table(stats: WorkloadStats) -> Table:
    return Table([Column(is_text=True), Column(to_text=number)], list(_flat(asdict(stats))))


def _flat(values: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    for name, value in values.items():
        words = name.replace("_pct", " %").replace("_s", " s").replace("_", " ")
        if isinstance(value, dict):
            for statistic, part in value.items():
                yield f"{words} {statistic}", part
        else:
            yield words, value
