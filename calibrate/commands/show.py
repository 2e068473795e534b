"""`calibrate show`: what a profile was measured on, where it holds, and how wrong it is."""

from pathlib import Path
from typing import Annotated

import typer

from sim.command_line import command


@command()
def show(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="file, or shipped name")],
) -> None:
    """Show what a profile was measured on, where it holds and how wrong it is."""
    from calibrate.power.add import power_lines, power_table
    from calibrate.tables import (
        error_table,
        fingerprint_table,
        left_out_table,
        range_table,
        remarks,
        term_table,
    )
    from sim.commands.output import print_line, print_table
    from sim.latency.profile.format import load_profile

    loaded = load_profile(profile, Path(), key=())
    for table in (fingerprint_table, range_table, term_table, error_table):
        print_table(table(loaded))
    if loaded.left_out:
        print_table(left_out_table(loaded))
    for remark in remarks(loaded):
        print_line(remark)
    if loaded.power is not None:
        print_table(power_table(loaded.power))
        for line in power_lines(loaded.power):
            print_line(line)
