"""What a fit of a server's power printed."""

from typing import TYPE_CHECKING

from sim.commands.output import print_line, print_table

if TYPE_CHECKING:
    from calibrate.power.add import Added


def print_power(added: "Added | None") -> None:
    """Print how good the fit is; nothing if there were no readings."""
    if added is None:
        return
    for table in added.tables:
        print_table(table)
    for line in added.lines:
        print_line(line)
