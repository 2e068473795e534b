"""The `calibrate` command line. Imports wait until a command runs, so that --help is quick."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sim.command_line import OutputFormat, Set, may_run_user_code, new_app, out_option, run_app

app = new_app("From measured runs to latency profiles, and how far to trust them.")


Scenario = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="estimate host times; LOG is then a measured run of this scenario (YAML)",
    ),
]
First = Annotated[
    int | None, typer.Option(min=1, help="with a scenario: only the first N requests by arrival")
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
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="run logs")],
    out: Annotated[Path, out_option("the profile, or host times, to write (.json)", "FILE")],
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
) -> None:
    """Fit a latency profile to run logs; or, with --scenario, host times to a measured run."""
    from calibrate.commands.modes import only_with, the_one_run

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
        typer.Option(min=1, help="with a scenario: all but the first N requests by arrival"),
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
    beside = {"--timeseries": timeseries, "--first": first, "--skip": skip, "--set": set_}
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
        as_json=format_ is OutputFormat.JSON,
    )
    if not agrees:
        raise typer.Exit(code=1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "calibrate", argv)


if __name__ == "__main__":
    sys.exit(main())
