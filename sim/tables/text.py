"""Text of table cells: numbers, and padding that counts the terminal columns of a character."""

from collections.abc import Collection, Sequence
from unicodedata import combining, east_asian_width

UNDEFINED = "-"


def number(value: float | None) -> str:
    """An int in full. A float has two decimals, but one from 100 on, and none from 1,000 on."""
    if value is None:
        return UNDEFINED
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def number_as(spec: str, value: float | None) -> str:
    """The number in a Python format such as `+.2f`; a dash if it is None."""
    return UNDEFINED if value is None else f"{value:{spec}}"


def yes_or_no(flag: bool | None) -> str:
    return UNDEFINED if flag is None else "yes" if flag else "no"


def counted(count: int, noun: str) -> str:
    """`1 step`, `1,200 steps`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def aligned(
    rows: Sequence[Sequence[str]],
    *,
    gap: int,
    right: Collection[int],
    min_widths: Sequence[int] = (),
) -> list[str]:
    """Each row as a line without trailing blanks; a column is as wide as its widest cell.

    All rows have the same number of cells. `gap` blanks are between two columns; the columns in
    `right`, counted from 0, are flush right; `min_widths` are in characters.
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
    """The text; if it has line ends or other control characters, they are escaped."""
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
