"""A figure as the page's script draws it: its panels, and the entries of its legend."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.report.interactive.marks import Mark, PanelMarks
from sim.report.interactive.read_axes import as_written, read_axis, read_cells, read_notes
from sim.report.interactive.read_marks import read_guides, read_marks

_COLOUR_BAR = "<colorbar>"


def figure_data(figure: Figure) -> dict[str, Any]:
    """The figure as JSON-like data."""
    bars = [axes for axes in figure.axes if axes.get_label() == _COLOUR_BAR]
    panels = [_panel(axes, bars[0] if bars else None)
              for axes in figure.axes if axes not in bars]  # fmt: skip
    lines = dict.fromkeys(mark.line for panel in panels for mark in panel.marks if mark.has_values)
    return {
        "lines": [line for line in lines if line],
        "panels": [_plain(panel) for panel in panels],
    }


def _panel(axes: Axes, colour_bar: Axes | None) -> PanelMarks:
    return PanelMarks(
        title=as_written(axes.get_title(loc="left") or axes.get_title()),
        x=read_axis(axes, "x"),
        y=read_axis(axes, "y"),
        marks=list(_with_intervals(list(read_marks(axes)))),
        guides=list(read_guides(axes)),
        notes=list(read_notes(axes)),
        cells=read_cells(axes, colour_bar),
    )


def _with_intervals(marks: Sequence[Mark]) -> Iterator[Mark]:
    """The marks; those with values get the ends of their line's band or bars at the same places."""
    ends: dict[str, dict[float, tuple[float, float]]] = {}
    for mark in marks:
        if not mark.has_values:
            ends.setdefault(mark.line, {}).update(_ends(mark))
    for mark in marks:
        found = [ends.get(mark.line, {}).get(x) if x is not None else None for x in mark.x]
        if mark.has_values and any(found):
            low, high = ([pair[side] if pair else None for pair in found] for side in (0, 1))
            yield replace(mark, low=low, high=high)
        else:
            yield mark


def _ends(mark: Mark) -> Mapping[float, tuple[float, float]]:
    """The lowest and the highest point at each place of a band, or of upright bars."""
    found: dict[float, tuple[float, float]] = {}
    if mark.kind == "band" or None in mark.x:
        for x, y in zip(mark.x, mark.y, strict=True):
            if x is not None and y is not None:
                low, high = found.get(x, (y, y))
                found[x] = min(low, y), max(high, y)
    return {x: ends for x, ends in found.items() if ends[0] < ends[1]}


def _plain(panel: PanelMarks) -> dict[str, Any]:
    """The panel without what is at its default: pages are read by programs, but sent by people."""
    return {
        **asdict(panel),
        "marks": [_without_defaults(mark) for mark in panel.marks],
        "cells": None if panel.cells is None else asdict(panel.cells),
    }


def _without_defaults(mark: Mark) -> dict[str, Any]:
    default = Mark(line="", kind="line", colour="", x=(), y=())
    return {name: value for name, value in asdict(mark).items()
            if name in {"kind", "x", "y"} or value != getattr(default, name)}  # fmt: skip
