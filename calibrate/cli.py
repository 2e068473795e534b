"""The `calibrate` command line. Commands import what they need when they run: help is quick."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sim.command_line import new_app, run_app

app = new_app("From measured runs to latency profiles, and how far to trust them.")


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


@app.command("fit")
def fit_command(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="run logs")],
    output: Annotated[Path, typer.Option("-o", "--output", help="the profile to write (.json)")],
    name: Annotated[str | None, typer.Option(help="of the profile; default: of its file")] = None,
    label: Annotated[str, typer.Option(help="what a reader should know about it")] = "",
    folds: Annotated[int, typer.Option(min=2, help="parts held out in turn, for the errors")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="draws the parts")] = 0,
) -> None:
    """Fit a latency profile to run logs."""
    from calibrate.commands.fit import fit

    fit(logs, output, name=name, label=label, num_folds=folds, seed=seed)


@app.command("show")
def show_command(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="file, or shipped name")],
) -> None:
    """Show what a profile was measured on, where it holds and how wrong it is."""
    from calibrate.commands.show import show

    show(profile)


@app.command("validate")
def validate_command(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="file, or shipped name")],
    logs: Annotated[list[Path], typer.Argument(metavar="RUNLOG...", help="logs of real runs")],
    out: Annotated[
        Path | None, typer.Option(help="write validation.json and pictures there")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="of the results")] = Format.TABLE,
    base_dir: Annotated[
        Path | None,
        typer.Option(
            help="what traces in the scenarios are relative to; default: the log's folder"
        ),
    ] = None,
    any_fingerprint: Annotated[
        bool, typer.Option("--any-fingerprint", help="also compare runs of another device or model")
    ] = False,
) -> None:
    """Simulate real runs again, and say how far simulation and reality are apart."""
    from calibrate.commands.validate import validate

    agrees = validate(
        profile,
        logs,
        directory=out,
        base_dir=base_dir,
        any_fingerprint=any_fingerprint,
        as_json=format_ is Format.JSON,
    )
    if not agrees:
        raise typer.Exit(code=1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, "calibrate", argv)


if __name__ == "__main__":
    sys.exit(main())
