"""`kind: bars`: metrics by the values of any swept key, with intervals over the seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from sim.core.arrays import Float64
from sim.metrics.confidence import MeanInterval
from sim.report.figures.captions import (
    Words,
    finished,
    seeds_caption,
    titled,
    without_value_caption,
)
from sim.report.figures.curve import interval_ends, value_line
from sim.report.figures.drawn import Drawn, Layout, Part, draw_parts
from sim.report.figures.lines import MetricPlot, values_with_results
from sim.report.figures.marks import Bars, Line, Mark, Panel, Style, segments
from sim.report.figures.metric_axis import Zero
from sim.report.figures.scales import KeyAxis
from sim.report.figures.slo import slo_caption
from sim.scenario.report_section import BarsPlot
from sim.sweep.results import SweepResults

# The share of the distance between two values of `x` that a group of bars fills, and the share of
# its place in the group that a bar fills.
_GROUP_WIDTH, _BAR_WIDTH = 0.8, 0.92


def draw_bars(data: SweepResults, plot: BarsPlot) -> Drawn:
    """Bars from zero, or dots where the axis is logarithmic."""
    shared = MetricPlot(data, plot, plot.y, Zero.ALWAYS)
    values, empty = values_with_results(data, shared.design, plot.x, shared.flat)
    places = KeyAxis.of_names(plot.x, values)

    def draw(part: Part, layout: Layout) -> Panel:
        limits = (-0.6, len(values) - 0.4)
        x_axis = places.axis(shared.x_label, layout.frame_px[0], limits=limits)
        is_log = shared.y_axes[part.metrics].axis.is_log
        marks: list[Mark] = []
        lines = shared.lines(part)
        for number, (style, points) in enumerate(lines):
            offset = (number - (len(lines) - 1) / 2) * _GROUP_WIDTH / len(lines)
            x = np.array([places.place(setting[plot.x]) for setting, _ in points]) + offset
            found = [interval for _, interval in points]
            marks += _of_line(x, found, style, _GROUP_WIDTH / len(lines), as_dots=is_log)
        return shared.panel(part, x_axis, marks)

    words = Words(f"{titled(shared.metrics)} by {shared.key}", ("bars", shared.key, *plot.y[:2]),
                  [without_value_caption(plot.x, empty), slo_caption(data, shared.y_axes),
                   seeds_caption(data, "error bars", shared.y_axes.values())])  # fmt: skip
    are_areas = not any(axis.axis.is_log for axis in shared.y_axes.values())
    legend = [replace(style, is_area=are_areas) for style in shared.styles.legend]
    return finished(draw_parts(shared.parts, draw), plot, words, shared.design.keys, legend)


def _of_line(
    x: Float64, found: Sequence[MeanInterval], style: Style, width: float, *, as_dots: bool
) -> Iterator[Mark]:
    line = value_line(x, found, style, size=7.0)
    yield replace(line, width=0) if as_dots else Bars(
        x=x, y=line.y, low=line.low, high=line.high, width=_BAR_WIDTH * width, colour=style.colour,
        line=style.label, hatch=style.hatch,
    )  # fmt: skip
    if len(line.low):
        along, up = segments(x, *interval_ends(found))
        yield Line(x=along, y=up, colour="#333333", line=style.label, width=1.2, marker="_")
