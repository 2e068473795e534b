"""`simulate run`: simulates a scenario, prints its summary, and writes the requested files."""

from pathlib import Path
from typing import Annotated

import typer

from sim.command_line.command import (
    Backend,
    OutputFormat,
    RayAddress,
    Scenario,
    Set,
    command,
    out_option,
    with_tracebacks,
)


@command(user_code=True)
def run(
    file: Scenario,
    set_: Set = None,
    out: Annotated[Path | None, out_option("folder for summary, tables and plots")] = None,
    format_: Annotated[
        OutputFormat, typer.Option("--format", help="format of the summary")
    ] = OutputFormat.TABLE,
    decisions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="write the decision log to this file (.jsonl or .jsonl.gz)"
        ),
    ] = None,
    requests: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="write a row for each request to this file (.csv or .parquet)"
        ),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write a trace for ui.perfetto.dev to this file"),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="write a page of all steps and requests over time to this file"
        ),
    ] = None,
    fast_forward: Annotated[
        bool,
        typer.Option(
            "--fast-forward/--no-fast-forward",
            help="compute runs of equal decode steps at once, or one by one: same results, slower",
        ),
    ] = True,
    check: Annotated[
        bool, typer.Option("--check", help="verify the invariants after every step")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="workers that share the replicas; default: 1, on Ray all cores"),
    ] = None,
    executor: Annotated[Backend, typer.Option(help="where workers run")] = Backend.PROCESS,
    ray_address: RayAddress = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="show the traceback of an error in your own policy")
    ] = False,
) -> None:
    """Run one scenario and print its summary."""
    from sim.commands.output import ResultFiles
    from sim.commands.running.run_built import RunWorkers, print_results, run_for_files
    from sim.scenario.build import build
    from sim.scenario.load import load_scenario

    outputs = ResultFiles(
        directory=out,
        decisions=decisions,
        requests=requests,
        perfetto=perfetto,
        timeline=timeline,
    )
    with with_tracebacks(debug):
        outputs.check(file)
        built = build(load_scenario(file, set_ or ()))
        # Now that everything is read: no input is overwritten.
        outputs.check(file)
        log = run_for_files(
            built,
            outputs,
            fast_forward=fast_forward,
            check=check,
            workers=RunWorkers(jobs=jobs, ray=executor is Backend.RAY, ray_address=ray_address),
        )
        print_results(log, built, outputs, json=format_ is OutputFormat.JSON)
