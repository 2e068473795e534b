"""`kind: load`: metrics against the load, with the first saturated load marked."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sim.metrics.metric_name import MetricName
from sim.metrics.points import MeanInterval
from sim.report.figures.axes import MetricAxis, value_axis
from sim.report.figures.drawn import (
    Drawn,
    Layout,
    PanelContent,
    draw_parts,
)
from sim.report.figures.key_text import (
    changes_arrivals,
    key_unit,
    number_of,
    number_text,
    relieves_load,
    setting_text,
)
from sim.report.figures.lines import MetricPlot, PlotLine, intervals
from sim.report.figures.marks import DASHED, DOTTED, GREY, Axis, Line, Mark, Panel, Rule, Style
from sim.report.figures.over_key import interval_band, uncovered, value_line
from sim.scenario.report_section import LoadPlot
from sim.sweep.results import Settings, SweepResults

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
    """The points of a line, from the smallest load to the largest."""
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
) -> Iterator[Rule]:
    """A dotted line at each turning point; where several coincide, dashes that take turns."""
    at: dict[float, list[Style]] = {}
    for style, points in lines:
        first = _turning_point(points, falls=falls)
        if first is not None:
            at.setdefault(round(first.load, 6), []).append(style)
    for load, styles in at.items():
        others = len(styles) - 1
        for place, style in enumerate(styles):
            yield Rule(axis="x", at=load, colour=style.colour, line=style.label, width=1.0,
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
