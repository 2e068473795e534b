"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with these cells; a `|` in a cell is escaped."""
    lines = [_row(header), _row(["---"] * len(header)), *map(_row, rows)]
    return "\n".join(lines)


def keys_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of keys: its names stay whole, and on a narrow screen its rows are paragraphs."""
    return f'<div class="keys" markdown>\n\n{table(header, rows)}\n\n</div>'


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
