"""Printing results on stdout."""

import sys

from rich.console import Console
from rich.table import Table

from sim.report.tables import to_text


def print_table(table: Table) -> None:
    """In colour on a terminal, plain and the same everywhere else."""
    if sys.stdout.isatty():
        Console().print(table)
    else:
        sys.stdout.write(to_text(table))


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
