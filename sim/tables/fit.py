"""Fits tables to a width: headers of several lines, narrow gaps, and at last several tables."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from sim.tables.table import Column, Table
from sim.tables.text import column_widths

# What text is fitted to where there is no terminal.
WIDTH = 80
_NARROW_GAP = 2
# Headers are not made narrower than this: `MAPE %` stays on a line.
_NARROWEST = 6
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
    """Tables of the first columns and as many of the others, in order, as fit."""
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
    """The columns with headers of as many lines as make them as narrow as their cells, if any."""
    cells = table.cells() or [[""] * len(table.columns)]
    widths = column_widths(cells, [column.min_width for column in table.columns])
    headers = [
        column.header if "\n" in column.header else _fold(column.header, max(wide, _NARROWEST))
        for column, wide in zip(table.columns, widths, strict=True)
    ]
    pairs = zip(table.columns, headers, strict=True)
    return [replace(column, header=header) for column, header in pairs]


def _on_one_line(columns: Sequence[Column]) -> list[Column]:
    """The columns with the last lines of their headers beside each other."""
    height = max(column.header.count("\n") for column in columns)
    return [
        replace(column, header="\n" * (height - column.header.count("\n")) + column.header)
        for column in columns
    ]


def _fold(header: str, width: int) -> str:
    """The header in lines of at most `width` characters, if its words are not longer."""
    lines: list[str] = []
    for part in re.findall(r"[^ _]+_?| ", header):
        if lines and (part == " " or len(lines[-1] + part) <= width):
            lines[-1] += part
        else:
            lines.append(part)
    return "\n".join(line.strip() for line in lines)
