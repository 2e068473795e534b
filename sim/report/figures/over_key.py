"""`kind: curve`, `scatter` and `bars`: metrics over the values of a swept key, with intervals."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from sim.core.arrays import Float64
from sim.metrics.points import MeanInterval
from sim.report.figures.axes import KeyAxis, Zero
from sim.report.figures.drawn import (
    Drawn,
    Layout,
    PanelContent,
    draw_parts,
    joined,
    without_value_caption,
)
from sim.report.figures.key_text import key_name
from sim.report.figures.lines import MetricPlot, Point, values_with_results
from sim.report.figures.marks import DOTTED, Axis, Band, Bars, Line, Mark, Panel, Style, segments
from sim.scenario.report_section import BarsPlot, CurvePlot, ScatterPlot
from sim.sweep.results import SweepResults

# Of the panel's height: lines that are nearer to each other everywhere look like one.
_NEAR = 0.012
_MORE_WIDTH, _MORE_MARKER = 2.6, 3.5
_MOST_ABOVE = 3
# The share of the distance between two values of `x` that a group of bars fills, and the share of
# its place in the group that a bar fills.
_GROUP_WIDTH, _BAR_WIDTH = 0.8, 0.92


def draw_curve(data: SweepResults, plot: CurvePlot) -> Drawn:
    """Lines over the values of `x`."""
    shared = MetricPlot(data, plot, plot.y)
    places = KeyAxis.of_numbers(plot.x, shared.design.values(plot.x), plot.x_scale)

    def draw(part: PanelContent, layout: Layout) -> Panel:
        x = places.axis(shared.x_label, layout.frame_px[0])
        lines = [list(_curve_marks(places, points, style)) for style, points in shared.lines(part)]
        y = shared.y_axes[part.metrics].axis
        return shared.panel(part, x, uncovered(lines, x, y, layout))

    picture = draw_parts(shared.parts, draw)
    slug = ("curve", shared.key, *plot.y[:2])
    return shared.drawn(picture, f"against {shared.key}", slug, intervals="bands")


def draw_scatter(data: SweepResults, plot: ScatterPlot) -> Drawn:
    """A dot for each setting, whatever its values of the other keys."""
    shared = MetricPlot(data, plot, plot.y)
    keys = shared.design.keys
    places = KeyAxis.of_numbers(plot.x, shared.design.values(plot.x), plot.x_scale)

    def draw(part: PanelContent, layout: Layout) -> Panel:
        dots = [
            Line(x=[places.place(setting[plot.x]) for setting, _ in points],
                 y=[interval.mean or 0.0 for _, interval in points], colour=style.colour,
                 line=style.label, has_values=True, width=0, marker=style.marker,
                 fill=style.fill, opacity=0.75)
            for style, points in shared.lines(part)
        ]  # fmt: skip
        return shared.panel(part, places.axis(shared.x_label, layout.frame_px[0]), dots)

    others = [key_name(key, keys) for key in keys if key not in (plot.x, *plot.lines)]
    also = f"Also varied: {joined(others)}." if others else ""
    picture = draw_parts([PanelContent({}, shared.design, group) for group in shared.metrics], draw)
    slug = ("scatter", shared.key, *plot.y[:2])
    return shared.drawn(picture, f"against {shared.key}", slug, ["Each dot is a setting.", also])


def _curve_marks(places: KeyAxis, points: Sequence[Point], style: Style) -> Iterator[Mark]:
    """Points with bands, joined from left to right; the line is dotted over a gap of the axis."""
    ordered = sorted(points, key=lambda point: places.place(point[0][places.key]))
    x = np.array([places.place(setting[places.key]) for setting, _ in ordered])
    found = [interval for _, interval in ordered]
    yield from interval_band(x, found, style)
    dots = value_line(x, found, style, size=5.0)
    is_detached = [places.is_detached(setting[places.key]) for setting, _ in ordered]
    gaps = [place for place, (one, next_) in enumerate(pairwise(is_detached), 1) if one != next_]
    pieces = [(slice(*ends), style.dash) for ends in pairwise([0, *gaps, len(x)])]
    pieces += [(slice(gap - 1, gap + 1), DOTTED) for gap in gaps]
    for piece, dash in pieces if gaps else ():
        yield replace(dots, x=x[piece], y=dots.y[piece], low=(), high=(), dash=dash, marker="",
                      has_values=False)  # fmt: skip
    yield replace(dots, width=0) if gaps else dots


def value_line(x: Float64, found: Sequence[MeanInterval], style: Style, size: float) -> Line:
    """The means of intervals, joined and marked; the intervals' ends go along if there are any."""
    has_ends = any(interval.half_width for interval in found)
    low, high = interval_ends(found) if has_ends else ((), ())
    return Line(
        x=x, y=np.array([interval.mean for interval in found], dtype=np.float64), low=low,
        high=high, colour=style.colour, line=style.label, has_values=True, dash=style.dash,
        marker=style.marker, fill=style.fill, size=size,
    )  # fmt: skip


def interval_ends(found: Sequence[MeanInterval]) -> tuple[Float64, Float64]:
    """The lower and the upper end of each interval; NaN where there is none."""
    ends = [interval.ends if interval.half_width else (np.nan, np.nan) for interval in found]
    low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
    return low, high


def interval_band(x: Float64, found: Sequence[MeanInterval], style: Style) -> Iterator[Mark]:
    """A band through the intervals of points from left to right; a single point gets a bar."""
    if not any(interval.half_width for interval in found):
        return
    low, high = np.array([interval.ends for interval in found], dtype=np.float64).T
    if len(found) == 1:
        along, up = segments(x, low, high)
        yield Line(x=along, y=up, colour=style.colour, line=style.label, width=4, opacity=0.5)
    else:
        yield Band(x=x, low=low, high=high, colour=style.colour, line=style.label, opacity=0.16)


def uncovered(lines: Sequence[Sequence[Mark]], x: Axis, y: Axis, layout: Layout) -> Iterator[Mark]:
    """The marks of lines; each line is wider for every later one that covers it.

    So lines that coincide can all be seen. One mark of each line has its values.
    """
    width, height = layout.frame_px
    places = [
        np.column_stack((x.shares(line.x) * width / height, y.shares(line.y)))
        for marks in lines
        for line in marks
        if isinstance(line, Line) and line.has_values
    ]
    for number, marks in enumerate(lines):
        num_above = sum(_covers(later, places[number]) for later in places[number + 1 :])
        more = min(num_above, _MOST_ABOVE)
        for mark in marks:
            if isinstance(mark, Line) and mark.opacity == 1:
                width_then = mark.width + more * _MORE_WIDTH if mark.width else 0
                yield replace(mark, width=width_then, size=mark.size + more * _MORE_MARKER)
            else:
                yield mark


def _covers(later: Float64, line: Float64) -> bool:
    """Whether all points of a line are hidden by those of a later one."""
    if later.shape != line.shape or not len(line):
        return False
    return bool(np.nan_to_num(np.abs(later - line), nan=0.0).max() < _NEAR)


def draw_bars(data: SweepResults, plot: BarsPlot) -> Drawn:
    """Bars from zero, or dots where the axis is logarithmic."""
    shared = MetricPlot(data, plot, plot.y, Zero.ALWAYS)
    values, empty = values_with_results(data, shared.design, plot.x, shared.flat)
    places = KeyAxis.of_names(plot.x, values)

    def draw(part: PanelContent, layout: Layout) -> Panel:
        limits = (-0.6, len(values) - 0.4)
        x_axis = places.axis(shared.x_label, layout.frame_px[0], limits=limits)
        is_log = shared.y_axes[part.metrics].axis.is_log
        marks: list[Mark] = []
        lines = shared.lines(part)
        for number, (style, points) in enumerate(lines):
            offset = (number - (len(lines) - 1) / 2) * _GROUP_WIDTH / len(lines)
            x = np.array([places.place(setting[plot.x]) for setting, _ in points]) + offset
            found = [interval for _, interval in points]
            marks += _bar_marks(x, found, style, _GROUP_WIDTH / len(lines), as_dots=is_log)
        return shared.panel(part, x_axis, marks)

    are_areas = not any(axis.axis.is_log for axis in shared.y_axes.values())
    legend = [replace(style, is_area=are_areas) for style in shared.styles.legend]
    picture, sentences = draw_parts(shared.parts, draw), [without_value_caption(plot.x, empty)]
    slug = ("bars", shared.key, *plot.y[:2])
    return shared.drawn(picture, f"by {shared.key}", slug, sentences, "error bars", legend)


def _bar_marks(
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
