"""Prints the results of a command, and checks the paths that it will write to."""

import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.core.errors import InputError
from sim.core.files import note_input, refuse_input
from sim.metrics.summary import Summary
from sim.report.summary_text import summary_text
from sim.tables.table import Coloured, Table, fitted, printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable


def print_summary(summary: Summary) -> None:
    """Print a summary; headings are bold on a terminal."""
    takes_escapes = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    sys.stdout.write(summary_text(summary, bold=sys.stdout.isatty() and takes_escapes))


def print_table(table: Table) -> None:
    """Print a table, at most 80 characters wide; on a terminal in colour and as wide as that.

    A wider table is printed in parts, below each other.
    """
    if sys.stdout.isatty():
        _print_on_terminal(table)
    else:
        sys.stdout.write("\n".join(part.text() for part in fitted(table)))


def print_line(text: str) -> None:
    """Print text, of one line or several; control characters in it are escaped."""
    lines = (printable(line) for line in text.split("\n"))
    sys.stdout.write("\n".join(lines) + "\n")


def print_remarks(remarks: Iterable[str], written: Sequence[Path]) -> None:
    """Print remarks on the tables printed before, then the paths of written files."""
    for remark in remarks:
        print_line(remark)
    if written:
        print_line(f"written: {', '.join(map(str, written))}")


def _print_on_terminal(table: Table) -> None:
    # Only terminals need `rich`, and it takes a tenth of a second to load.
    from rich.console import Console

    console = Console()
    for place, part in enumerate(fitted(table, console.width)):
        if place:
            console.print()
        console.print(_rich(part))


def _rich(table: Table) -> "RichTable":
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    # The box itself puts one blank between columns.
    shown = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, caption_justify="left",
                      padding=(0, 1, 0, table.gap - 2),
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
    return shown


# Files that commands write into their folders, and that a command may be given to read.
_RESULTS = (
    "contest.csv", "contest.json", "contest.md", "fit.json", "fleet.csv", "measured.jsonl.gz",
    "over-time.csv", "requests.csv", "requests.parquet", "results.csv", "results.json",
    "results.parquet", "run.jsonl.gz", "scenario.json", "scenario.yaml", "server.json",
    "summary.json", "timeline.csv", "tokens.jsonl.gz", "validation.json", "workload.jsonl.gz",
)  # fmt: skip


def check_folder(path: Path, read: Path) -> None:
    """Check before anything runs that a command can write a folder.

    The folder need not exist. None of its files may be what the command reads.
    """
    if path.is_dir():
        check_writable(path, path)
    elif path.exists():
        raise InputError(f"{path}: is a file, expected a folder")
    elif not path.parent.is_dir():
        raise InputError(f"{path}: its folder {path.parent} does not exist")
    else:
        check_writable(path, path.parent)
    note_input(read)
    for name in _RESULTS:
        refuse_input(path / name)


def check_writable(path: Path, folder: Path) -> None:
    """Try to write to a folder, because permission bits do not tell; an error names `path`."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
