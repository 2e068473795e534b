"""A table as text of fixed width, HTML and CSV; the text of its cells, and how it fits a width."""

import csv
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import takewhile
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple
from unicodedata import combining, east_asian_width

from sim.core.files import atomic_path

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


_BOLD, _NORMAL = "\x1b[1m", "\x1b[0m"
_EMPTY = ("", UNDEFINED)
# Text cells longer than this many characters may be wrapped on a page.
_LONG = 60
# A spreadsheet takes text that begins with one of these for a formula.
_FORMULA_BEGINS = ("=", "+", "@", "\t", "\r")
# What text is fitted to where there is no terminal.
WIDTH = 80
_NARROW_GAP = 2
# Headers are not made narrower than this: `MAPE %` stays on a line.
_NARROWEST = 6


class Coloured(NamedTuple):
    """A cell whose text is coloured on terminals."""

    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        is_text: flush left; other columns are flush right, as numbers are.
        to_text: turns a cell's value into its text.
        min_width: in characters of the text form.
    """

    header: str = ""
    is_text: bool = False
    to_text: Callable[[Any], str] = str
    min_width: int = 0

    def cell(self, value: object) -> str:
        return value.text if isinstance(value, Coloured) else self.to_text(value)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values under columns.

    Attributes:
        rows: each with a value for every column. The CSV form contains the values themselves, the
            other forms the text that the column makes of each value. If `rows` is an iterator, only
            one form can be made.
        title: above the HTML form.
        note: below the table; empty: nothing.
        gap: blanks between columns of the text form.
    """

    columns: Sequence[Column]
    rows: Iterable[Sequence[Any]]
    title: str = ""
    note: str = ""
    gap: int = 3

    def cells(self) -> list[list[str]]:
        """The text of every cell, row by row."""
        return [
            [column.cell(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    @property
    def width(self) -> int:
        """Of the text form, in columns of a terminal; `rows` must not be an iterator."""
        widths = self._widths([*_header_lines(self.columns), *self.cells()])
        return sum(widths) + self.gap * (len(widths) - 1)

    def _widths(self, rows: Sequence[Sequence[str]]) -> list[int]:
        return column_widths(rows, [column.min_width for column in self.columns])

    def lines(self, *, bold: bool = False) -> list[str]:
        """The text form, without line ends and as wide as it needs to be.

        The header and the rule below it are left out if no column has a header; columns without
        values are left out, too. A bold header has escape sequences of terminals.
        """
        shown = self.without_empty_columns()
        header = _header_lines(shown.columns)
        rows = [*header, *shown.cells()]
        widths = shown._widths(rows)
        right = {place for place, column in enumerate(shown.columns) if not column.is_text}
        lines = aligned(rows, gap=self.gap, right=right, min_widths=widths)
        width = sum(widths) + self.gap * (len(widths) - 1)
        head, body = lines[: len(header)], lines[len(header) :]
        if head:
            body = ["─" * width, *body]
        if bold:
            head = [f"{_BOLD}{line}{_NORMAL}" for line in head]
        return [*head, *body, *wrap(printable(self.note), width, break_on_hyphens=False)]

    def text(self) -> str:
        """The text form; it does not depend on the terminal."""
        return "".join(f"{line}\n" for line in self.lines())

    def html(self) -> str:
        """A heading, the table, and the note below it."""
        note = f'\n<p class="facts">{escape(self.note)}</p>' if self.note else ""
        table = f'<div class="scroll">{self.html_table()}</div>'
        return f"<h2>{escape(self.title)}</h2>\n{table}{note}"

    def html_table(self) -> str:
        """The table alone; columns without values are left out."""
        shown = self.without_empty_columns()
        header = _html_row("th", shown.columns, [column.header for column in shown.columns])
        rows = "\n".join(_html_row("td", shown.columns, row) for row in shown.cells())
        return f"<table>\n<thead>{header}</thead>\n<tbody>\n{rows}\n</tbody>\n</table>"

    def without_empty_columns(self) -> "Table":
        """The table without the columns in which no row has a value; if none has one, as it is."""
        whole = replace(self, rows=list(self.rows))
        cells = whole.cells()
        kept = [place for place in range(len(self.columns))
                if any(row[place] not in _EMPTY for row in cells)]  # fmt: skip
        if not cells or len(kept) in {0, len(self.columns)}:
            return whole
        rows = [[row[place] for place in kept] for row in whole.rows]
        return replace(whole, columns=[self.columns[place] for place in kept], rows=rows)

    def write_csv(self, path: Path) -> None:
        """Write a line of headers, then a line for each row.

        Undefined values (None, NaN) are empty cells; booleans, lists and mappings are JSON.
        """
        with atomic_path(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([column.header for column in self.columns])
            writer.writerows(map(_csv_row, self.rows))


def columns_of(
    text: Iterable[str] = (),
    numbers: Iterable[str] = (),
    more_text: Iterable[str] = (),
    *,
    to_text: Callable[[Any], str] = str,
) -> list[Column]:
    """Columns with these headers: text columns, then number columns, then more text columns.

    `to_text` turns a value in a number column into its text.
    """
    return [
        *(Column(header, is_text=True) for header in text),
        *(Column(header, to_text=to_text) for header in numbers),
        *(Column(header, is_text=True) for header in more_text),
    ]


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table, to be written as CSV, of one or more rows given by column name.

    All rows have the same names in the same order.
    """
    return Table(columns_of(numbers=rows[0]), (list(row.values()) for row in rows))


def _header_lines(columns: Sequence[Column]) -> list[list[str]]:
    """Cells of the header, line by line; no lines if no column has a header."""
    parts = [column.header.split("\n") for column in columns]
    height = max(map(len, parts), default=0) if any(column.header for column in columns) else 0
    return [[part[line] if line < len(part) else "" for part in parts] for line in range(height)]


def _html_row(tag: str, columns: Sequence[Column], cells: Sequence[str]) -> str:
    shown = (
        f"<{tag}{_html_class(column, text)}>{escape(text)}</{tag}>"
        for column, text in zip(columns, cells, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"


def _html_class(column: Column, text: str) -> str:
    if not column.is_text:
        return ""
    return ' class="text wide"' if len(text) > _LONG else ' class="text"'


def _float_cell(value: float) -> float | str:
    return "" if math.isnan(value) else value


def _text_cell(text: str) -> str:
    """The text, after an apostrophe if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA_BEGINS) else text


# How CSV writes values of these types; other values are written unchanged.
_CSV_CELLS: Mapping[type, Callable[[Any], object]] = {
    float: _float_cell,
    str: _text_cell,
    **dict.fromkeys((bool, list, tuple, dict), json.dumps),
}


def _csv_row(row: Sequence[Any]) -> list[object]:
    return [write(value) if (write := _CSV_CELLS.get(type(value))) else value for value in row]


_ROW = Column("row")


def fitted(table: Table, width: int = WIDTH) -> list[Table]:
    """The table, if it is not wider than `width`; else tables below each other that are not.

    Each of them has all rows. Its first columns are those that identify a row: the leading
    columns of text or the first column, or else the number of the row. A single column may still
    be wider than `width`. Columns without values are left out.
    """
    whole = table.without_empty_columns()
    if whole.width <= width:
        return [whole]
    folded = replace(whole, columns=_folded(whole), gap=_NARROW_GAP)
    parts = [folded] if folded.width <= width else _parts(*_with_names(folded, width), width)
    return [replace(part, columns=_on_one_line(part.columns)) for part in parts]


def _with_names(table: Table, width: int) -> tuple[Table, int]:
    """The table, and how many of its first columns identify a row; maybe with row numbers."""
    # Values of a swept number identify rows as well as names do.
    num_names = len(list(takewhile(lambda column: column.is_text, table.columns))) or 1
    names = [tuple(row[:num_names]) for row in table.cells()]
    width_of_names = replace(
        table, columns=table.columns[:num_names], rows=[row[:num_names] for row in table.rows]
    ).width
    if len(set(names)) == len(names) and width_of_names <= width // 2:
        return table, num_names
    rows = [[number, *row] for number, row in enumerate(table.rows, start=1)]
    return replace(table, columns=[_ROW, *table.columns], rows=rows), 1


def _parts(table: Table, num_names: int, width: int) -> list[Table]:
    """Tables that each have the first columns, and as many of the others, in order, as fit."""
    names = list(range(num_names))
    blocks: list[list[int]] = [names]
    for place in range(num_names, len(table.columns)):
        wider = [*blocks[-1], place]
        if blocks[-1] == names or _selected(table, wider).width <= width:
            blocks[-1] = wider
        else:
            blocks.append([*names, place])
    return [
        replace(_selected(table, places), note=table.note if places is blocks[-1] else "")
        for places in blocks
    ]


def _selected(table: Table, places: Sequence[int]) -> Table:
    rows = [[row[place] for place in places] for row in table.rows]
    return replace(table, columns=[table.columns[place] for place in places], rows=rows)


def _folded(table: Table) -> list[Column]:
    """The columns, their headers in as many lines as make them as narrow as the cells."""
    cells = table.cells() or [[""] * len(table.columns)]
    widths = column_widths(cells, [column.min_width for column in table.columns])
    headers = [
        column.header if "\n" in column.header else _fold(column.header, max(wide, _NARROWEST))
        for column, wide in zip(table.columns, widths, strict=True)
    ]
    pairs = zip(table.columns, headers, strict=True)
    return [replace(column, header=header) for column, header in pairs]


def _on_one_line(columns: Sequence[Column]) -> list[Column]:
    """The columns with headers of equally many lines: empty ones above those that had fewer."""
    height = max(column.header.count("\n") for column in columns)
    return [
        replace(column, header="\n" * (height - column.header.count("\n")) + column.header)
        for column in columns
    ]


def _fold(header: str, width: int) -> str:
    """The header in lines of at most `width` characters, but for words that are longer."""
    lines: list[str] = []
    for part in re.findall(r"[^ _]+_?| ", header):
        if lines and (part == " " or len(lines[-1] + part) <= width):
            lines[-1] += part
        else:
            lines.append(part)
    return "\n".join(line.strip() for line in lines)
