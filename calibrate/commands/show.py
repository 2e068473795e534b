"""`calibrate show`: what a profile was measured on, where it holds, and how wrong it is."""

from pathlib import Path

from sim.commands.output import print_line, print_table


def show(name_or_path: str) -> None:
    """Print a profile: a shipped one by name, or a file.

    Raises:
        InputError: there is no such profile, or this version cannot read it.
    """
    from calibrate.tables import (
        error_table,
        fingerprint_table,
        left_out_table,
        range_table,
        remarks,
        term_table,
    )
    from sim.latency.profile.files import load_profile

    profile = load_profile(name_or_path, Path())
    for table in (fingerprint_table, range_table, term_table, error_table):
        print_table(table(profile))
    if profile.left_out:
        print_table(left_out_table(profile))
    for remark in remarks(profile):
        print_line(remark)
