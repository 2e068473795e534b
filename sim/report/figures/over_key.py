"""`kind: curve`, `scatter`, `bars` and `load`: metrics over a swept key or the load."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Float64
from sim.metrics.points import MeanInterval
from sim.metrics.registry import MetricName
from sim.report.figures.axes import KeyAxis, MetricAxis, Zero, value_axis
from sim.report.figures.key_text import (
    changes_arrivals,
    key_name,
    key_unit,
    number_of,
    number_text,
    relieves_load,
    setting_text,
)
from sim.report.figures.marks import (
    DASHED,
    DOTTED,
    GREY,
    Axis,
    Band,
    Bars,
    Guide,
    Line,
    Mark,
    Panel,
    Style,
    segments,
)
from sim.report.figures.plot_parts import (
    Drawn,
    Layout,
    MetricPlot,
    PanelContent,
    PlotLine,
    Point,
    draw_parts,
    intervals,
    joined,
    values_with_results,
    without_value_caption,
)
from sim.scenario.report_section import BarsPlot, CurvePlot, LoadPlot, ScatterPlot
from sim.sweep.results import Settings, SweepResults

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


_RATE = MetricName.of("request_rate")
_SATURATED = MetricName.of("saturated")
# A load is saturated if at least this share of its runs are.
_SATURATED_SHARE = 0.5
# Rates that cannot exceed the offered load.
_BOUNDED = ("request_goodput", "request_throughput")
_SENT = "The grey dashes are the rate at which requests were sent."


class _LoadPoint(NamedTuple):
    """A setting's load, and its metric there."""

    load: float
    interval: MeanInterval
    is_saturated: bool


def draw_load(data: SweepResults, plot: LoadPlot) -> Drawn:
    """Lines over the load; hollow points are saturated, a dotted line marks the first of them."""
    shared = MetricPlot(data, plot, plot.y or (default_metric(data),))
    by_rate = plot.at == "request_rate" or (plot.at is None and changes_arrivals(plot.x))
    falls = relieves_load(plot.x)
    loads = [_load(data, plot, setting, by_rate) for setting in shared.design.settings]
    label = plot.x_label or (_RATE.metric.label_with_unit if by_rate else shared.x_label)
    x = value_axis([_RATE], [load for load in loads if load], scale=plot.x_scale, label=label)
    # A dict keeps the order and says a sentence once: it is the same for each metric of a line.
    said: dict[str, None] = {}

    def draw(part: PanelContent, layout: Layout) -> Panel:
        y = shared.y_axes[part.metrics]
        lines = shared.styles.lines(part.design, part.metrics)
        drawn = [(line.style, _points(data, plot, line, by_rate)) for line in lines]
        for line, (_, points) in zip(lines, drawn, strict=True):
            said[_verdict(points, _whose(part, line, plot), plot, by_rate)] = None
        marks = [list(_of_line(style, points, y)) for style, points in drawn]
        sent = [_sent(x)] if by_rate and part.metrics[0].base in _BOUNDED else []
        rules = _first_saturated(drawn, falls=falls)
        return shared.panel(part, x, [*sent, *uncovered(marks, x, y.axis, layout), *rules])

    picture = draw_parts(shared.parts, draw)
    sentences = [_SENT if by_rate and shared.flat[0].base in _BOUNDED else "",
                 "Hollow points are saturated.", *said]  # fmt: skip
    # The legend has no hollow markers, because on the figure they are saturated loads.
    legend = [replace(style, fill="full") for style in shared.styles.legend]
    ending = f"against {shared.key if falls else 'load'}"
    slug = ("load", shared.key, shared.flat[0].name)
    return shared.drawn(picture, ending, slug, sentences, "bands", legend)


def default_metric(data: SweepResults) -> str:
    """Goodput if the scenario has an SLO, otherwise throughput."""
    has_slo = any(
        summary.get("goodput_slos_ms")
        for setting in data.design.settings
        for summary in data.summaries(setting)
    )
    return "request_goodput" if has_slo else "request_throughput"


def _points(data: SweepResults, plot: LoadPlot, line: PlotLine, by_rate: bool) -> list[_LoadPoint]:
    found = []
    for setting, interval in intervals(data, line):
        load = _load(data, plot, setting, by_rate)
        share = data.interval(setting, _SATURATED).mean
        if load is not None:
            is_saturated = share is not None and share >= _SATURATED_SHARE
            found.append(_LoadPoint(load, interval, is_saturated))
    return sorted(found, key=lambda point: point.load)


def _load(data: SweepResults, plot: LoadPlot, setting: Settings, by_rate: bool) -> float | None:
    """The load of a setting; None if it is not known or not a finite number."""
    if by_rate:
        return data.interval(setting, _RATE).mean
    load = number_of(plot.x, setting[plot.x])
    return load if math.isfinite(load) else None


def _turning_point(points: Sequence[_LoadPoint], *, falls: bool) -> _LoadPoint | None:
    """The first saturated load; with numbers that relieve the server, the last one."""
    return next(
        (point for point in (points[::-1] if falls else points) if point.is_saturated), None
    )


def _of_line(style: Style, points: Sequence[_LoadPoint], axis: MetricAxis) -> Iterator[Mark]:
    """The band of a line, the line, and over it the points that are saturated."""
    style = replace(style, fill="full")
    found = [axis.shown(point.interval) for point in points]
    loads = np.array([point.load for point in points])
    yield from interval_band(loads, found, style)
    line = value_line(loads, found, style, size=6.0)
    yield line
    hollow = np.array([point.is_saturated for point in points], dtype=np.bool_)
    if hollow.any():
        yield replace(line, x=loads[hollow], y=np.asarray(line.y)[hollow], low=(), high=(),
                      has_values=False, width=0, fill="hollow")  # fmt: skip


def _first_saturated(
    lines: Sequence[tuple[Style, Sequence[_LoadPoint]]], *, falls: bool
) -> Iterator[Guide]:
    """A dotted line at each turning point; where several coincide, dashes that take turns."""
    at: dict[float, list[Style]] = {}
    for style, points in lines:
        first = _turning_point(points, falls=falls)
        if first is not None:
            at.setdefault(round(first.load, 6), []).append(style)
    for load, styles in at.items():
        others = len(styles) - 1
        for place, style in enumerate(styles):
            yield Guide(axis="x", at=load, colour=style.colour, line=style.label, width=1.0,
                       dash=(4, 4 * others) if others else DOTTED, shift=-4 * place)  # fmt: skip


def _sent(x: Axis) -> Line:
    """The line on which the rate served is the rate sent."""
    loads = np.linspace(*x.limits, 100)
    return Line(x=loads, y=loads, colour=GREY, width=0.9, dash=DASHED)


def _whose(part: PanelContent, line: PlotLine, plot: LoadPlot) -> str:
    """The settings of a line in words, without the group of requests that it shows."""
    values = {key: line.settings[0][key] for key in plot.lines}
    return setting_text({**part.values, **values}, part.design.keys)


def _verdict(points: Sequence[_LoadPoint], which: str, plot: LoadPlot, by_rate: bool) -> str:
    """Which load is the first saturated one, in words."""
    of = f" of {which}" if which else ""
    first = _turning_point(points, falls=relieves_load(plot.x))
    if first is None:
        return f"No load{of} saturates."
    unit = _RATE.unit if by_rate else key_unit(plot.x)
    if relieves_load(plot.x):
        return f"Saturated{of} up to {number_text(first.load)} {unit}."
    return f"The first saturated load{of} is {number_text(float(f'{first.load:.3g}'))} {unit}."
