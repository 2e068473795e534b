"""What a benchmark's client prints, as text laid out as it does."""

from collections.abc import Iterator, Mapping
from typing import Any

from sim.tables.table import Column, Table
from sim.tables.text import UNDEFINED

_WIDTH, _LABEL = 50, 40


def client_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The lines, with a first one that names the program.

    Args:
        found: `client_figures` of a summary.
    """
    program, figures = found["program"], found["figures"]
    yield f"What {program} prints of it:"
    if all("avg" in row for row in figures.values()):
        yield from _table(figures)
        return
    for place, (heading, lines) in enumerate(figures.items()):
        yield f" {heading} ".center(_WIDTH, "=") if not place else heading.center(_WIDTH, "-")
        for label, value in lines.items():
            yield f"{label + ':':<{_LABEL}} {_text(value)}"
    yield "=" * _WIDTH


def _table(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    names = list(next(iter(figures.values())))
    columns = [Column("Metric", is_text=True), *(Column(name, to_text=_cell) for name in names)]
    rows = [[label, *(row.get(name) for name in names)] for label, row in figures.items()]
    return Table(columns, rows).lines()


def _cell(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:,.2f}"


def _text(value: float | None) -> str:
    if value is None:
        return UNDEFINED
    return f"{value:.2f}" if isinstance(value, float) else str(value)
