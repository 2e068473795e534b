"""Printing results on stdout."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from sim.metrics.summary import Summary
from sim.report.summary_text import summary_text
from sim.tables.table import Coloured, Table


def print_summary(summary: Summary) -> None:
    """Print a summary; headings are bold on a terminal."""
    takes_escapes = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    sys.stdout.write(summary_text(summary, bold=sys.stdout.isatty() and takes_escapes))


def print_table(table: Table) -> None:
    """Print a table; on a terminal it is in colour and fitted to the width."""
    if sys.stdout.isatty():
        _print_on_terminal(table)
    else:
        sys.stdout.write(table.text())


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")


def print_remarks(remarks: Iterable[str], written: Sequence[Path]) -> None:
    """Print remarks on the tables printed before, then the paths of written files."""
    for remark in remarks:
        print_line(remark)
    if written:
        print_line(f"written: {', '.join(map(str, written))}")


def say(text: str) -> None:
    """Print a line on stderr at once, for example the progress of a long command."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _print_on_terminal(table: Table) -> None:
    # Only terminals need `rich`, and it takes a tenth of a second to load.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as RichTable

    shown = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, caption_justify="left",
                      caption=escape(table.note) or None,
                      show_header=any(column.header for column in table.columns))  # fmt: skip
    for column in table.columns:
        header = escape(column.header)
        if column.is_text:
            # Break a long name into lines instead of cutting it off.
            shown.add_column(header, overflow="fold")
        else:
            shown.add_column(header, justify="right")
    for row, texts in zip(table.rows, table.cells(), strict=True):
        cells = [
            f"[{value.colour}]{escape(text)}[/]" if isinstance(value, Coloured) else escape(text)
            for value, text in zip(row, texts, strict=True)
        ]
        shown.add_row(*cells)
    Console().print(shown)
