"""`simulate workload`: prints statistics of the traffic of a scenario or of a trace."""

import json as jsonlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.commands.output import print_line
from sim.scenario.build import located_errors
from sim.scenario.load import load_scenario
from sim.scenario.trace_file import load_trace
from sim.tables.table import Column, Table
from sim.tables.text import number, printable
from sim.workload.build import build_workload
from sim.workload.stats import WorkloadStats, workload_stats
from sim.workload.traces.formats import TraceFormat
from sim.workload.traces.recognise import recognise
from sim.workload.workload import Workload


def describe_workload(
    path: Path,
    overrides: Sequence[str],
    *,
    json: bool,
    block_size: int | None = None,
    trace: TraceFormat | None = None,
) -> None:
    """Print rates, lengths, and the hit rate of a cache that never evicts.

    Args:
        path: the scenario, or a trace.
        overrides: `--set` options.
        json: print JSON instead of a table.
        block_size: tokens in a block of that cache; None: the trace's block size, or 512.
        trace: the file is a trace in this format; None: recognised from its content.

    Raises:
        InputError: the scenario or its trace is invalid.
    """
    trace = trace or recognise(path)
    workload = _of_scenario(path, overrides) if trace is None else _of(path, trace, overrides)
    stats = workload_stats(workload, block_size)
    named = {} if trace is None else {"format": trace}
    notes = {"notes": workload.notes} if workload.notes else {}
    if json:
        found = named | asdict(stats) | notes
        print_line(jsonlib.dumps(found, indent=2, allow_nan=False))
        return
    if trace is not None:
        print_line(f"{path}: a trace, format {trace}")
    print_line("")
    for line in _table(stats).lines():
        print_line(f"  {line}")
    print_line("")
    for note in workload.notes:
        print_line(printable(note))


def _of_scenario(path: Path, overrides: Sequence[str]) -> Workload:
    loaded = load_scenario(path, overrides)
    scenario = loaded.scenario
    with located_errors(loaded):
        return build_workload(scenario.workload, seed=scenario.seed, base_dir=loaded.base_dir)


def _of(path: Path, trace: TraceFormat, overrides: Sequence[str]) -> Workload:
    loaded = load_trace(path, trace, overrides)
    return build_workload(loaded.workload, seed=loaded.seed, base_dir=Path())


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
