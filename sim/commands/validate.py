"""`simulate validate` and `workload`: a scenario and its traffic, without a run."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.command_line import OutputFormat, Scenario, Set, command, format_option, renamed
from sim.tables.table import counted, number, printable
from sim.workload import FORMATS, TraceFormat

if TYPE_CHECKING:
    from sim.scenario.build import BuiltScenario
    from sim.workload.workload import Workload

    TraceName = TraceFormat
else:
    TraceName = StrEnum("TraceName", {name: name for name in FORMATS})


@command(user_code=True)
def validate(file: Scenario, set_: Set = None) -> None:
    """Check a scenario and the files it names, without running it."""
    from sim.commands.output import print_line
    from sim.commands.running.simulate import handover_of
    from sim.contest.plan import plan_contest
    from sim.des.routers.table import make_router
    from sim.report.plots import check_report_section
    from sim.scenario.build import build, located_errors
    from sim.scenario.load import load_scenario
    from sim.sweep.plan import plan_sweep
    from sim.sweep.tune.plan import plan_tune

    loaded = load_scenario(file, set_ or ())
    built = build(loaded)
    for each in loaded.pools.values() or (loaded,):
        with located_errors(each):
            make_router(each.scenario.router, each.base_dir)
    with located_errors(loaded):
        handover_of(built)
    requests = counted(built.workload.num_requests, "request")
    text = f"{file}: valid; {requests}, {_servers(built)}"
    plan = None if loaded.scenario.sweep is None else plan_sweep(loaded)
    check_report_section(loaded, plan)
    if plan is not None:
        text += f", a sweep of {counted(len(plan.points), 'point')}"
    if loaded.scenario.tune is not None:
        text += f", a search of {counted(plan_tune(loaded).num_trials, 'trial')}"
    if loaded.scenario.contest is not None:
        text += f", a contest of {counted(plan_contest(loaded).num_runs, 'run')}"
    print_line(text)


def _servers(built: "BuiltScenario") -> str:
    """`3 replicas`, or `2 replicas in pool prefill, 1 replica in pool decode`."""
    if not built.pools:
        return counted(len(built.latencies), "replica")
    return ", ".join(
        f"{counted(len(pool.latencies), 'replica')} in pool {name}"
        for name, pool in built.pools.items()
    )


@command(user_code=True)
def workload(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="scenario file (YAML), or a trace")],
    set_: Set = None,
    format_: Annotated[OutputFormat, format_option("table")] = OutputFormat.TABLE,
    from_: Annotated[
        TraceName | None,
        typer.Option("--from", help="read FILE as a trace in this format; default: recognised"),
    ] = None,
    _trace: Annotated[str | None, renamed("--trace", "--from")] = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="tokens in a block of the cache; default: as in the trace, or 512"
        ),
    ] = None,
) -> None:
    """Describe traffic: rates, lengths, and the hit rate of an unlimited cache."""
    from sim.commands.output import print_line
    from sim.tables.table import Column, Table
    from sim.workload.kinds.stats import workload_stats
    from sim.workload.traces.read import recognise

    trace = from_ or recognise(file)
    options = set_ or ()
    described = _of_scenario(file, options) if trace is None else _of_trace(file, trace, options)
    stats = asdict(workload_stats(described, block_size))
    if format_ is OutputFormat.JSON:
        named = {} if trace is None else {"format": trace}
        notes = {"notes": described.notes} if described.notes else {}
        print_line(json.dumps(named | stats | notes, indent=2, allow_nan=False))
        return
    if trace is not None:
        print_line(f"{file}: a trace, format {trace}")
    print_line("")
    for line in Table([Column(is_text=True), Column(to_text=number)], list(_flat(stats))).lines():
        print_line(f"  {line}")
    print_line("")
    for note in described.notes:
        print_line(printable(note))


def _of_scenario(path: Path, overrides: Sequence[str]) -> "Workload":
    from sim.scenario.build import located_errors
    from sim.scenario.load import load_scenario
    from sim.workload.kinds.build import build_workload

    loaded = load_scenario(path, overrides)
    scenario = loaded.scenario
    with located_errors(loaded):
        return build_workload(scenario.workload, seed=scenario.seed, base_dir=loaded.base_dir)


def _of_trace(path: Path, trace: TraceFormat, overrides: Sequence[str]) -> "Workload":
    from sim.scenario.load import load_trace
    from sim.workload.kinds.build import build_workload

    loaded = load_trace(path, trace, overrides)
    return build_workload(loaded.workload, seed=loaded.seed, base_dir=Path())


def _flat(values: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    """A row for each number of the statistics: its name in words, and its value."""
    for name, value in values.items():
        words = name.replace("_pct", " %").replace("_s", " s").replace("_", " ")
        if isinstance(value, dict):
            for statistic, part in value.items():
                yield f"{words} {statistic}", part
        else:
            yield words, value
