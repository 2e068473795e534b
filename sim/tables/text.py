"""Text of fixed width: cells side by side, by the columns that a terminal gives each character."""

from collections.abc import Collection, Sequence
from unicodedata import combining, east_asian_width


def aligned(
    rows: Sequence[Sequence[str]],
    *,
    gap: int,
    right: Collection[int],
    min_widths: Sequence[int] = (),
) -> list[str]:
    """Each row as a line without trailing blanks, all columns as wide as their widest cell.

    Args:
        rows: of equally many cells.
        gap: blanks between two columns.
        right: which columns are flush right, counted from 0.
        min_widths: of the columns, in characters.
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = column_widths(shown, min_widths)
    return [
        (" " * gap)
        .join(
            _padded(cell, width, flush_right=place in right)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        .rstrip()
        for row in shown
    ]


def column_widths(rows: Sequence[Sequence[str]], min_widths: Sequence[int] = ()) -> list[int]:
    """The width of each column's widest cell, or the column's minimum."""
    widths = [
        max(text_width(printable(cell)) for cell in column) for column in zip(*rows, strict=True)
    ]
    return [max(pair) for pair in zip(widths, min_widths or widths, strict=True)]


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
