"""The `calibrate` command line. Imports wait until a command runs, so that --help is quick."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.command_line import (
    OutputFormat,
    Set,
    may_run_user_code,
    new_app,
    out_option,
    renamed,
    run_app,
)
from sim.families import RESULT_FORMATS

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = StrEnum("FormatName", {name: name for name in RESULT_FORMATS})

app = new_app("From measured runs to latency profiles, and how far to trust them.")


Scenario = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="estimate host times; LOG is then a measured run of this scenario (YAML)",
    ),
]
First = Annotated[
    int | None,
    typer.Option(min=1, help="with results or a scenario: only the first N requests by arrival"),
]
MeasuredArrivals = Annotated[
    bool,
    typer.Option(
        "--measured-arrivals",
        help="with a scenario: requests arrive at their measured arrival times",
    ),
]


@app.command("fit")
@may_run_user_code
def fit_command(
    logs: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="results of a benchmark; or run logs")
    ],
    out: Annotated[
        Path,
        out_option(
            "folder to write; of run logs or host times: a file that ends in .json", "DIR|FILE"
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(help="name of the profile; default: that of the file, without .json"),
    ] = None,
    label: Annotated[str | None, typer.Option(help="what a reader should know about it")] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="parts of the samples that are held out in turn to measure errors; default: 5",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="seed of the random division into these parts; default: 0"),
    ] = None,
    scenario: Scenario = None,
    set_: Set = None,
    first: First = None,
    per_request: Annotated[
        bool,
        typer.Option("--per-request", help="with a scenario: also a time per request in a step"),
    ] = False,
    measured_arrivals: MeasuredArrivals = False,
    kind: Annotated[
        str | None,
        typer.Option(help="of results: linear, roofline or aiconfigurator; default: linear"),
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(metavar="SCENARIO", help="of results: a scenario of the server"),
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="LINE", help="of results: the command of the server")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="GPU", help="of results: its GPUs, such as h100_sxm")
    ] = None,
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try", metavar="KEY=V,V...", help="of results: take the best of these settings"
        ),
    ] = None,
    from_: Annotated[
        FormatName | None,
        typer.Option("--from", help="format of results; default: detected from their content"),
    ] = None,
    _format: Annotated[str | None, renamed("--format", "--from")] = None,
    line: Annotated[
        int | None, typer.Option(min=1, help="of results with one run on each line: this line")
    ] = None,
) -> None:
    """Fit a scenario's step times to a benchmark's results, or a latency profile to run logs.

    With --scenario: fit host times to a measured run.
    """
    from calibrate.commands.modes import are_results, only_with, the_one_run

    of_results = {
        "--kind": kind, "--template": template, "--server": server, "--hardware": hardware,
        "--try": try_, "--from": from_, "--line": line,
    }  # fmt: skip
    if scenario is None and (from_ is not None or are_results(logs)):
        from calibrate.coefficients.prepare import PrepareOptions
        from calibrate.coefficients.scenario import ServerOptions
        from calibrate.commands.fit_results import FitOptions, fit_results
        from sim.workload.results.model import ReadOptions

        only_with("run logs", {"--name": name, "--label": label, "--folds": folds, "--seed": seed})
        with_scenario = {"--per-request": per_request, "--measured-arrivals": measured_arrivals}
        only_with("--scenario", with_scenario)
        about = ServerOptions(kind=kind, template=template, server=server, hardware=hardware)
        options = FitOptions(
            prepare=PrepareOptions(server=about, overrides=set_ or (), tries=try_ or ()),
            first=first,
            format=from_,
            read=ReadOptions(line=line),
        )
        fit_results(logs, out, options)
        return
    only_with("results of a benchmark", of_results)
    if scenario is None:
        beside = {"--set": set_, "--first": first, "--per-request": per_request}
        only_with("--scenario", {**beside, "--measured-arrivals": measured_arrivals})
        from calibrate.commands.fit import fit

        fit(logs, out, name=name, label=label or "", num_folds=folds or 5, seed=seed or 0)
        return
    only_with(
        "run logs, not with --scenario",
        {"--name": name, "--label": label, "--folds": folds, "--seed": seed},
    )
    from calibrate.commands.fit_host import fit_host
    from calibrate.commands.measured_input import MeasuredInput
    from calibrate.measured.pairs import Selection

    given = MeasuredInput(
        scenario=scenario,
        run=the_one_run(logs),
        overrides=set_ or (),
        selection=Selection(first=first),
        measured_arrivals=measured_arrivals,
    )
    fit_host(given, out, per_request=per_request)


@app.command("show")
def show_command(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="file, or shipped name")],
) -> None:
    """Show what a profile was measured on, where it holds and how wrong it is."""
    from calibrate.commands.show import show

    show(profile)


@app.command("validate")
@may_run_user_code
def validate_command(
    profile: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE|SCENARIO",
            help="profile (file, or shipped name), or scenario (a name that ends in .yaml or .yml)",
        ),
    ],
    logs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="with a profile: logs of real runs; with a scenario: one measured run",
        ),
    ],
    out: Annotated[Path | None, out_option("folder for validation.json and pictures")] = None,
    format_: Annotated[
        OutputFormat, typer.Option("--format", help="format of the results")
    ] = OutputFormat.TABLE,
    base_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="with a profile: folder of relative paths in the runs' scenarios;"
            " default: the log's folder",
        ),
    ] = None,
    any_fingerprint: Annotated[
        bool,
        typer.Option(
            "--any-fingerprint",
            help="with a profile: also compare runs of another device or model",
        ),
    ] = False,
    timeseries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="with a scenario: requests running and waiting over time (CSV: t,running,waiting)",
        ),
    ] = None,
    first: First = None,
    skip: Annotated[
        int | None,
        typer.Option(min=1, help="all but the first N requests by arrival"),
    ] = None,
    set_: Set = None,
    measured_arrivals: MeasuredArrivals = False,
) -> None:
    """Simulate real runs again, and say how far simulation and reality are apart.

    With a profile: run logs, each with its scenario inside, simulated with the profile's times.
    With a scenario: a run of which only each request's times were measured.
    """
    from calibrate.commands.modes import is_scenario, only_with, the_one_run

    if is_scenario(profile):
        only_with("a profile", {"--base-dir": base_dir, "--any-fingerprint": any_fingerprint})
        from calibrate.commands.measured_input import MeasuredInput
        from calibrate.commands.validate_measured import validate_measured
        from calibrate.measured.pairs import Selection

        measured = MeasuredInput(
            scenario=Path(profile),
            run=the_one_run(logs),
            overrides=set_ or (),
            selection=Selection(first=first, skip=skip),
            measured_arrivals=measured_arrivals,
        )
        as_json = format_ is OutputFormat.JSON
        validate_measured(measured, timeseries=timeseries, directory=out, as_json=as_json)
        return
    beside = {"--timeseries": timeseries, "--first": first, "--set": set_}
    only_with(
        "a scenario (.yaml) as first argument", {**beside, "--measured-arrivals": measured_arrivals}
    )
    from calibrate.commands.validate import validate

    agrees = validate(
        profile,
        logs,
        directory=out,
        base_dir=base_dir,
        any_fingerprint=any_fingerprint,
        skip=skip or 0,
        as_json=format_ is OutputFormat.JSON,
    )
    if not agrees:
        raise typer.Exit(code=1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "calibrate", argv)


if __name__ == "__main__":
    sys.exit(main())
