"""`kind: trade-off`: one metric against another along a swept key, with the knee marked."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.metrics.metric_name import MetricName
from sim.metrics.points import Knee, MeanInterval, find_knee
from sim.report.figures.axes import MetricAxis, Zero, in_order
from sim.report.figures.drawn import (
    Drawn,
    Layout,
    PanelContent,
    draw_parts,
    finished,
    parts_of,
    seeds_caption,
)
from sim.report.figures.key_text import key_name, key_unit, setting_text, value_text
from sim.report.figures.lines import (
    PlotLine,
    Styles,
    limit_marks,
    limit_of,
    metric_axis,
    slo_caption,
)
from sim.report.figures.marks import BLACK, Axis, Line, Mark, Note, Panel, Style, placed, segments
from sim.report.figures.over_key import interval_ends, value_line
from sim.scenario.report_section import TradeOffPlot
from sim.sweep.results import Settings, SweepResults, same

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


def draw_trade_off(data: SweepResults, plot: TradeOffPlot) -> Drawn:
    """Joined points, each with its value of `along`."""
    design = data.design.where(plot.where or {})
    across, up = MetricName.of(plot.x), MetricName.of(plot.y)
    styles = Styles(design, plot.lines, [up])
    x_axis = metric_axis(data, design, (across,), scale=plot.x_scale, label=plot.x_label,
                         zero=Zero.IF_SHOWN)  # fmt: skip
    y_axis = metric_axis(data, design, (up,), scale=plot.y_scale, label=plot.y_label,
                         zero=Zero.IF_SHOWN)  # fmt: skip
    sentences: list[str] = []

    def draw(part: PanelContent, layout: Layout) -> Panel:
        traces = []
        for line in styles.lines(part.design, [up]):
            points = _points(data, plot, line, across)
            knee = _knee(points, (across, up), (x_axis, y_axis)) if plot.knee else None
            traces.append(_Trace(line.style, points, knee))
        if plot.knee:
            where = setting_text(part.values, design.keys)
            sentences.extend(_said(plot, trace, where) for trace in traces if trace.points)
        x, y = x_axis.axis, y_axis.axis
        marks = [
            *limit_marks(limit_of(data, (up,)), y),
            *limit_marks(limit_of(data, (across,)), x, "x"),
            *(mark for trace in traces for mark in _marks(trace, x_axis, y_axis)),
        ]
        labels = [label for trace in traces for label in _labels(plot, trace, (x, y), layout)]
        return Panel(x=x, y=y, marks=[*marks, *placed(labels, (x, y), layout.frame_px)])

    picture = draw_parts(parts_of(design, [plot.along, *plot.lines], [(up,)]), draw)
    name = key_name(plot.along, design.keys)
    title = f"{up.long_label} against {across.long_label}, by {name}"
    intro = f"Points are labelled with {name}{_unit(plot.along)}."
    bars = seeds_caption(data, "thin bars", (x_axis, y_axis))
    slug = ("trade-off", name, plot.y, plot.x)
    slo = slo_caption(data, {(across,): x_axis, (up,): y_axis})
    captions = [intro, *sentences, slo, bars]
    return finished(picture, plot, design.keys, title, slug, captions, styles.legend)


def _points(
    data: SweepResults, plot: TradeOffPlot, line: PlotLine, across: MetricName
) -> tuple[_TradeOffPoint, ...]:
    """The points at which both metrics are defined, in order of the key."""
    points = [
        _TradeOffPoint(setting, data.interval(setting, across), data.interval(setting, line.metric))
        for setting in line.settings
    ]
    points = [p for p in points if p.x.mean is not None and p.y.mean is not None]
    values = [same(each) for each in in_order(plot.along, [p.setting[plot.along] for p in points])]
    return tuple(sorted(points, key=lambda p: values.index(same(p.setting[plot.along]))))


def _knee(
    points: Sequence[_TradeOffPoint], metrics: tuple[MetricName, MetricName],
    axes: tuple[MetricAxis, MetricAxis],
) -> Knee | None:  # fmt: skip
    """The knee of the line as it looks: with the logarithms of values on a logarithmic axis."""
    columns = []
    both = [point.x for point in points], [point.y for point in points]
    for axis, intervals in zip(axes, both, strict=True):
        means = [interval.mean or 0.0 for interval in intervals]
        halves = [interval.half_width or 0.0 for interval in intervals]
        is_log = axis.axis.is_log
        if is_log and any(mean <= 0 for mean in means):
            return None
        if is_log:
            # The error of a logarithm is, to first order, the relative error.
            halves = [half / mean for half, mean in zip(halves, means, strict=True)]
            means = [math.log(mean) for mean in means]
        columns += [means, halves]
    x, x_errors, y, y_errors = columns
    better = metrics[0].better, metrics[1].better
    return find_knee(x, y, better=better, x_errors=x_errors, y_errors=y_errors)


def _marks(trace: _Trace, x_axis: MetricAxis, y_axis: MetricAxis) -> Iterator[Mark]:
    """The joined points, with thin bars through them and a ring around the knee."""
    style = trace.style
    across = [x_axis.shown(point.x) for point in trace.points]
    x = np.array([interval.mean for interval in across], dtype=np.float64)
    line = value_line(x, [y_axis.shown(point.y) for point in trace.points], style, size=6.0)
    y, x_along = segments(line.y, *interval_ends(across))
    bars = [(x_along, y), *([segments(line.x, line.low, line.high)] if len(line.low) else [])]
    for x, y in bars:
        if not np.isnan(x + y).all():
            yield Line(x=x, y=y, colour=style.colour, line=style.label, width=0.8, opacity=0.4)
    yield line
    if trace.knee is not None:
        at = slice(trace.knee.index, trace.knee.index + 1)
        yield Line(x=line.x[at], y=line.y[at], colour=BLACK, line=style.label, width=0, marker="o",
                   fill="none", size=15)  # fmt: skip


def _labels(
    plot: TradeOffPlot, trace: _Trace, axes: tuple[Axis, Axis], layout: Layout
) -> list[Note]:
    """A label for each point; points at the same place share one."""
    knee = None if trace.knee is None else trace.knee.index
    labels: list[Note] = []
    places: list[tuple[float, float]] = []
    for number, point in enumerate(trace.points):
        value = value_text(plot.along, point.setting[plot.along])
        text = f"knee: {value}" if number == knee else value
        x, y = point.x.mean or 0.0, point.y.mean or 0.0
        place = (float(axes[0].shares([x])[0]) * layout.frame_px[0],
                 float(axes[1].shares([y])[0]) * layout.frame_px[1])  # fmt: skip
        near = [i for i, other in enumerate(places) if math.dist(place, other) < _NEAR_PX]
        if near:
            old = labels[near[0]]
            labels[near[0]] = replace(
                old, text=f"{old.text}, {text}", is_bold=old.is_bold or number == knee
            )
            continue
        colour = BLACK if number == knee else trace.style.colour
        labels.append(Note(text=text, x=x, y=y, colour=colour, is_bold=number == knee))
        places.append(place)
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
