"""Draws a soak: the server's memory, and how late tokens were, over time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.report.figures.axes import axis_from_zero
from sim.report.figures.marks import PALETTE, Axis, Line, Panel, Picture, Style

_PARTS = 120
_LATE = (("median", 50), ("99 %", 99), ("most", 100))


class Sample(NamedTuple):
    """The server at a time, in s since the start; `requests`: those good clients had by then."""

    at_s: float
    memory_mib: float
    files: int
    requests: int


def soak_picture(samples: Sequence[Sample], late: Sequence[tuple[float, float]]) -> Picture:
    """The picture; `late` has each token's time in s and its lateness in ms."""
    minutes = np.array([each.at_s for each in samples]) / 60
    memory = np.array([each.memory_mib for each in samples])
    time = Axis(label="time (min)", limits=(0.0, float(minutes[-1]) or 1.0))
    marks = [Line(x=minutes, y=memory, colour=PALETTE[0], has_values=True)]
    panels = [Panel(x=time, y=axis_from_zero("MiB", memory), marks=marks, title="Server's memory")]

    at_s, late_ms = np.array(late).T
    edges = np.linspace(0, time.limits[1], _PARTS + 1)
    parts = np.digitize(at_s / 60, edges)
    found = [late_ms[parts == part] for part in range(1, _PARTS + 1)]
    lines, legend = [], []
    for number, (label, percent) in enumerate(_LATE):
        y = np.array([np.percentile(each, percent) if len(each) else np.nan for each in found])
        colour = PALETTE[number]
        lines.append(Line(x=(edges[1:] + edges[:-1]) / 2, y=y, colour=colour, line=label,
                          has_values=True))  # fmt: skip
        legend.append(Style(label, colour, marker=""))
    y_axis = axis_from_zero("ms", *[np.asarray(line.y) for line in lines])
    panels.append(Panel(x=time, y=y_axis, marks=lines, title="Tokens late", legend=legend))
    return Picture(panels=panels, columns=1, size_px=(1_200, 700), shares="x",
                   title="simulate serve beside bad clients")  # fmt: skip
