"""Printing results on stdout."""

import os
import sys
from typing import TYPE_CHECKING

from sim.report.metrics import Summary
from sim.report.summary_text import summary_text

if TYPE_CHECKING:
    from rich.table import Table


def print_summary(summary: Summary) -> None:
    """With bold headings on a terminal that takes them, plain and the same everywhere else."""
    takes_escapes = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    sys.stdout.write(summary_text(summary, bold=sys.stdout.isatty() and takes_escapes))


def print_table(table: "Table") -> None:
    """In colour on a terminal, plain and the same everywhere else."""
    from rich.console import Console

    from sim.report.tables import to_text

    if sys.stdout.isatty():
        Console().print(table)
    else:
        sys.stdout.write(to_text(table))


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
