"""`kind: trade-off`: one metric against another along a swept key, with the knee marked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes

from sim.metrics.confidence import MeanInterval
from sim.metrics.knee import Knee, find_knee
from sim.metrics.metric_name import MetricName
from sim.report.figures.canvas import Drawn, Style
from sim.report.figures.captions import Words, finished, seeds_caption
from sim.report.figures.labels import Label, place_labels
from sim.report.figures.lines import PlotLine, Styles, metric_axes, show_metric
from sim.report.figures.metric_axis import MetricAxis, Zero
from sim.report.figures.ownership import beside, own
from sim.report.figures.panels import Panel, draw_panels, panels_of
from sim.report.figures.slo import draw_limit, limit_of, slo_caption
from sim.report.key_text import key_name, key_unit, number_of, setting_text, value_text
from sim.report.plot_check import is_number
from sim.report.plot_style import styled
from sim.scenario.report_section import TradeOffPlot
from sim.sweep.design import Settings
from sim.sweep.results import SweepResults

_KNEE_COLOUR = "#222222"
_NEAR_PX = 4.0


@dataclass(frozen=True, slots=True)
class _TradeOffPoint:
    """A setting, with the two metrics' intervals; both have means."""

    setting: Settings
    x: MeanInterval
    y: MeanInterval


@dataclass(frozen=True, slots=True)
class _Trace:
    """A line's points in the order of the swept key, and its knee."""

    style: Style
    points: tuple[_TradeOffPoint, ...]
    knee: Knee | None


@styled
def draw_trade_off(data: SweepResults, plot: TradeOffPlot) -> Drawn:
    """Joined points, each with its value of `along`."""
    design = data.design.where(plot.where or {})
    across, up = MetricName.of(plot.x), MetricName.of(plot.y)
    styles = Styles(design, plot.lines, [up])
    [x_axis] = metric_axes(data, design, [(across,)], scale=plot.x_scale,
                          label=plot.x_label, zero=Zero.IF_SHOWN).values()  # fmt: skip
    [y_axis] = metric_axes(data, design, [(up,)], scale=plot.y_scale,
                           label=plot.y_label, zero=Zero.IF_SHOWN).values()  # fmt: skip
    sentences: list[str] = []

    def draw(axes: Axes, panel: Panel) -> None:
        lines = [
            (line, _points(data, plot, line, across)) for line in styles.lines(panel.design, [up])
        ]
        x_axis.show(axes, "x")
        show_metric(axes, y_axis, data, (up,))
        if (limit := limit_of(data, (across,))) is not None:
            draw_limit(axes, limit, "x")
        logs = x_axis.is_log, y_axis.is_log
        better = across.better, up.better
        traces = [_Trace(line.style, points, _knee(points, better, logs) if plot.knee else None)
                  for line, points in lines]  # fmt: skip
        _draw_traces(axes, plot, [_shown(trace, x_axis, y_axis) for trace in traces])
        if plot.knee:
            where = setting_text(panel.values, design.keys)
            sentences.extend(_said(plot, trace, where) for trace in traces if trace.points)

    figure = draw_panels(panels_of(design, [plot.along, *plot.lines], [(up,)]), draw)
    name = key_name(plot.along, design.keys)
    title = f"{up.long_label} against {across.long_label}, by {name}"
    intro = f"Points are labelled with {name}{_unit(plot.along)}."
    bars = seeds_caption(data, "thin bars", (x_axis, y_axis))
    words = Words(
        title,
        ("trade-off", name, plot.y, plot.x),
        [intro, *sentences, slo_caption(data, {(across,): x_axis, (up,): y_axis}), bars],
    )
    return finished(figure, plot, words, design.keys, styles.legend)


def _points(
    data: SweepResults, plot: TradeOffPlot, line: PlotLine, across: MetricName
) -> tuple[_TradeOffPoint, ...]:
    """The points at which both metrics are defined, in order of the key.

    Numbers are ordered by size, infinity last; other values as they were swept.
    """
    points = [
        _TradeOffPoint(setting, data.interval(setting, across), data.interval(setting, line.metric))
        for setting in line.settings
    ]
    points = [p for p in points if p.x.mean is not None and p.y.mean is not None]
    values = [point.setting[plot.along] for point in points]
    if all(value is None or is_number(value) for value in values):
        numbers = {id(p): number_of(plot.along, p.setting[plot.along]) for p in points}
        points.sort(key=lambda p: (math.isnan(numbers[id(p)]), numbers[id(p)]))
    return tuple(points)


def _shown(trace: _Trace, x_axis: MetricAxis, y_axis: MetricAxis) -> _Trace:
    """The trace with the intervals that the axes can show."""
    points = (replace(p, x=x_axis.shown(p.x), y=y_axis.shown(p.y)) for p in trace.points)
    return replace(trace, points=tuple(points))


def _knee(
    points: Sequence[_TradeOffPoint], better: tuple[int, int], logs: tuple[bool, bool]
) -> Knee | None:
    columns = []
    for is_log, intervals in zip(
        logs, ([point.x for point in points], [point.y for point in points]), strict=True
    ):
        means = [interval.mean or 0.0 for interval in intervals]
        halves = [interval.half_width or 0.0 for interval in intervals]
        if is_log and any(mean <= 0 for mean in means):
            return None
        if is_log:
            # The error of a logarithm is, to first order, the relative error.
            halves = [half / mean for half, mean in zip(halves, means, strict=True)]
            means = [math.log(mean) for mean in means]
        columns += [means, halves]
    x, x_errors, y, y_errors = columns
    return find_knee(x, y, better=better, x_errors=x_errors, y_errors=y_errors)


def _draw_traces(axes: Axes, plot: TradeOffPlot, traces: Sequence[_Trace]) -> None:
    labels = []
    for trace in traces:
        x = [point.x.mean or 0.0 for point in trace.points]
        y = [point.y.mean or 0.0 for point in trace.points]
        colour = trace.style.colour
        axes.errorbar(
            x, y,
            xerr=[point.x.half_width or 0.0 for point in trace.points],
            yerr=[point.y.half_width or 0.0 for point in trace.points],
            linestyle="none", ecolor=colour, elinewidth=0.8, alpha=0.4,
            label=beside(trace.style.label),
        )  # fmt: skip
        axes.plot(x, y, color=colour, linestyle=trace.style.dash, marker=trace.style.marker,
                  markersize=6, label=own(trace.style.label))  # fmt: skip
        labels += _labels(axes, plot, trace, x, y)
        if trace.knee is not None:
            at = trace.knee.index
            axes.plot(x[at], y[at], "o", markersize=15, markerfacecolor="none",
                      markeredgecolor=_KNEE_COLOUR, markeredgewidth=1.5,
                      label=beside(trace.style.label))  # fmt: skip
    place_labels(axes, labels)


def _labels(
    axes: Axes, plot: TradeOffPlot, trace: _Trace, x: Sequence[float], y: Sequence[float]
) -> list[Label]:
    """A label for each point; points at the same place share one."""
    knee = None if trace.knee is None else trace.knee.index
    pixels = axes.transData.transform(np.column_stack((x, y))) if x else np.zeros((0, 2))
    labels: list[Label] = []
    places: list[np.ndarray] = []
    for number, point in enumerate(trace.points):
        value = value_text(plot.along, point.setting[plot.along])
        text = f"knee: {value}" if number == knee else value
        near = [i for i, at in enumerate(places) if np.hypot(*(at - pixels[number])) < _NEAR_PX]
        if near:
            old = labels[near[0]]
            labels[near[0]] = old._replace(
                text=f"{old.text}, {text}", is_bold=old.is_bold or number == knee
            )
            continue
        colour = _KNEE_COLOUR if number == knee else trace.style.colour
        labels.append(Label(x[number], y[number], text, colour, number == knee))
        places.append(pixels[number])
    return labels


def _said(plot: TradeOffPlot, trace: _Trace, where: str) -> str:
    """One sentence for the caption: the setting of the knee, or that the line has no knee."""
    which = ", ".join(filter(None, [where, trace.style.label]))
    of = f" of {which}" if which else ""
    if trace.knee is None:
        return f"The line{of} has no knee."
    value = value_text(plot.along, trace.points[trace.knee.index].setting[plot.along])
    return (
        f"The knee{of} is at {value}{_unit(plot.along) if value != '∞' else ''},"
        f" {trace.knee.distance:.2f} from the chord."
    )


def _unit(key: str) -> str:
    return f" {unit}" if (unit := key_unit(key)) in {"ms", "s", "tokens", "requests"} else ""
