"""`calibrate validate`: compares simulations with real runs."""

from pathlib import Path
from typing import Annotated

import typer

from calibrate.commands.options import First, MeasuredArrivals
from sim.command_line import OutputFormat, Set, command, format_option, out_option


@command(user_code=True)
def validate(
    *,
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
    format_: Annotated[OutputFormat, format_option("results")] = OutputFormat.TABLE,
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
) -> int:
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
        validate_measured(measured, timeseries=timeseries, folder=out, as_json=as_json)
        return 0
    beside = {"--timeseries": timeseries, "--first": first, "--set": set_}
    only_with(
        "a scenario (.yaml) as first argument", {**beside, "--measured-arrivals": measured_arrivals}
    )
    from calibrate.commands.validate_profile import validate_profile

    agrees = validate_profile(
        profile,
        logs,
        folder=out,
        base_dir=base_dir,
        any_fingerprint=any_fingerprint,
        skip=skip or 0,
        as_json=format_ is OutputFormat.JSON,
    )
    return 0 if agrees else 1
