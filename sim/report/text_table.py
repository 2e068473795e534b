"""Plain text tables without a library: what every run prints must not wait for one."""

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

_BOLD, _NORMAL = "\x1b[1m", "\x1b[0m"


def headed_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, min_width: int = 0, bold: bool
) -> list[str]:
    """A line of headings, a rule, and the rows; all columns but the first are flush right.

    Args:
        headings: of each column.
        rows: with as many cells each.
        min_width: of all columns but the first, in characters.
        bold: the headings, by an escape sequence.

    Returns:
        The lines, as wide as the table needs.
    """
    head, *lines = aligned(
        [headings, *rows], gap=3, right={*range(1, len(headings))}, min_width=min_width
    )
    rule = "─" * max(map(text_width, [head, *lines]))
    return [f"{_BOLD}{head}{_NORMAL}" if bold else head, rule, *lines]


def aligned(
    rows: Sequence[Sequence[str]], *, gap: int, right: set[int], min_width: int = 0
) -> list[str]:
    """Each row as a line without trailing blanks; the columns in `right` are flush right.

    Args:
        rows: of equally many cells.
        gap: blanks between two columns.
        right: which columns, counted from 0.
        min_width: of the columns in `right`, in characters.
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [
        max([min_width if place in right else 0, *map(text_width, column)])
        for place, column in enumerate(zip(*shown, strict=True))
    ]
    return [
        (" " * gap)
        .join(
            _padded(cell, width, flush_right=place in right)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        .rstrip()
        for row in shown
    ]


def printable(text: str) -> str:
    """The text with line ends, escape sequences and the like spelled out."""
    return text if text.isprintable() else repr(text)[1:-1]


def text_width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def _padded(cell: str, width: int, *, flush_right: bool) -> str:
    blanks = " " * (width - text_width(cell))
    return blanks + cell if flush_right else cell + blanks
