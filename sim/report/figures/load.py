"""`kind: load`: metrics against the load, with the first saturated load marked."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sim.metrics.confidence import MeanInterval
from sim.metrics.metric_name import MetricName
from sim.report.figures.canvas import Drawn
from sim.report.figures.captions import Words, finished, seeds_caption, titled
from sim.report.figures.covered import uncover
from sim.report.figures.curve import draw_band
from sim.report.figures.lines import PlotLine, Styles, intervals, metric_axes, show_metric
from sim.report.figures.metric_axis import MetricAxis
from sim.report.figures.ownership import beside, own
from sim.report.figures.panels import Panel, draw_panels, panels_of
from sim.report.figures.slo import slo_caption
from sim.report.key_text import (
    changes_arrivals,
    key_label,
    key_name,
    key_unit,
    number_of,
    number_text,
    relieves_load,
    setting_text,
)
from sim.report.plot_check import panel_metrics
from sim.report.plot_style import GREY, styled
from sim.scenario.report_section import LoadPlot
from sim.sweep.design import Settings
from sim.sweep.results import SweepResults

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


@styled
def draw_load(data: SweepResults, plot: LoadPlot) -> Drawn:
    """Lines over the load; hollow points are saturated, a dotted line marks the first of them."""
    design = data.design.where(plot.where or {})
    metrics = panel_metrics(plot.y or (default_metric(data),))
    styles = Styles(design, plot.lines, [metric for group in metrics for metric in group])
    by_rate = plot.at == "request_rate" or (plot.at is None and changes_arrivals(plot.x))
    falls = relieves_load(plot.x)
    y_axes = metric_axes(data, design, metrics, scale=plot.y_scale, label=plot.y_label)
    x_axis = MetricAxis.of_values(
        [_RATE],
        [load for setting in design.settings if (load := _load(data, plot, setting, by_rate))],
        scale=plot.x_scale,
        label=plot.x_label or _label(plot, design.keys, by_rate),
    )
    # A dict keeps the order and says a sentence once: it is the same for each metric of a line.
    said: dict[str, None] = {}

    def draw(axes: Axes, panel: Panel) -> None:
        drawn = [
            (line, _points(data, plot, line, by_rate))
            for line in styles.lines(panel.design, panel.metrics)
        ]
        x_axis.show(axes, "x")
        y_axis = y_axes[panel.metrics]
        show_metric(axes, y_axis, data, panel.metrics)
        if by_rate and panel.metrics[0].base in _BOUNDED:
            _draw_sent(axes)
        parts = []
        for line, points in drawn:
            shown = [point._replace(interval=y_axis.shown(point.interval)) for point in points]
            parts.append(_draw_points(axes, line, shown))
            said[_verdict(points, _whose(panel, line, plot), plot, by_rate)] = None
        uncover(axes, parts)
        _mark_saturated(axes, drawn, falls=falls)

    figure = draw_panels(panels_of(design, [plot.x, *plot.lines], metrics), draw)
    sentences = [_SENT if by_rate and metrics[0][0].base in _BOUNDED else "",
             "Hollow points are saturated.", *said,
             slo_caption(data, y_axes), seeds_caption(data, "bands", y_axes.values())]  # fmt: skip
    slug = ("load", key_name(plot.x, design.keys), metrics[0][0].name)
    # The legend has no hollow markers, because on the figure they are saturated loads.
    legend = [replace(style, fill="full") for style in styles.legend]
    against = key_name(plot.x, design.keys) if falls else "load"
    words = Words(f"{titled(metrics)} against {against}", slug, sentences)
    return finished(figure, plot, words, design.keys, legend)


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


def _draw_points(axes: Axes, line: PlotLine, points: Sequence[_LoadPoint]) -> list[Line2D]:
    style = line.style
    loads = np.array([point.load for point in points])
    means = np.array([point.interval.mean for point in points], dtype=np.float64)
    draw_band(axes, loads, [point.interval for point in points], style)
    colour = style.colour
    parts = axes.plot(loads, means, color=colour, linestyle=style.dash, label=own(style.label))
    for point, mean in zip(points, means.tolist(), strict=True):
        face = "white" if point.is_saturated else colour
        parts += axes.plot(point.load, mean, style.marker, color=colour, markersize=6,
                           label=beside(style.label), markerfacecolor=face)  # fmt: skip
    return parts


def _mark_saturated(
    axes: Axes, lines: Sequence[tuple[PlotLine, Sequence[_LoadPoint]]], *, falls: bool
) -> None:
    """A dotted line at each turning point; where several coincide, dashes that take turns."""
    at: dict[float, list[PlotLine]] = {}
    for line, points in lines:
        first = _turning_point(points, falls=falls)
        if first is not None:
            at.setdefault(round(first.load, 6), []).append(line)
    for load, marked in at.items():
        others = len(marked) - 1
        for place, line in enumerate(marked):
            dash: Any = (-4 * place, (4, 4 * others)) if others else (0, (1, 2))
            axes.axvline(load, color=line.style.colour, linewidth=1.0, linestyle=dash,
                         label=beside(line.style.label))  # fmt: skip


def _draw_sent(axes: Axes) -> None:
    """Draw the line on which the rate served is the rate sent. The axes keep their limits."""
    low, high = axes.get_xlim()
    loads = np.linspace(low, high, 100)
    limits = axes.get_ylim()
    axes.plot(loads, loads, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_xlim(low, high)
    axes.set_ylim(limits)


def _whose(panel: Panel, line: PlotLine, plot: LoadPlot) -> str:
    """The settings of a line in words, without the group of requests that it shows."""
    values = {key: line.settings[0][key] for key in plot.lines}
    return setting_text({**panel.values, **values}, panel.design.keys)


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


def _label(plot: LoadPlot, keys: Sequence[str], by_rate: bool) -> str:
    return _RATE.metric.label_with_unit if by_rate else key_label(plot.x, keys)
