"""`kind: trade-off` and `kind: heat`: one metric against another, or one over two swept keys."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.core.arrays import Float64
from sim.metrics.points import Knee, MeanInterval, find_knee
from sim.metrics.registry import Better, MetricName
from sim.report.figures.axes import MetricAxis, Zero, in_order, log_ticks, round_ticks, wants_log
from sim.report.figures.key_text import (
    key_label,
    key_name,
    key_unit,
    latency_text,
    number_text,
    setting_text,
    value_text,
    where_text,
)
from sim.report.figures.marks import (
    BLACK,
    Axis,
    Cells,
    Line,
    Mark,
    Note,
    Panel,
    Style,
    placed,
    segments,
)
from sim.report.figures.over_key import interval_ends, value_line
from sim.report.figures.plot_parts import (
    Drawn,
    Layout,
    PanelContent,
    PlotLine,
    Styles,
    draw_parts,
    finished,
    limit_marks,
    limit_of,
    metric_axis,
    parts_of,
    seeds_caption,
    slo_caption,
    values_with_results,
    without_value_caption,
)
from sim.scenario.report_section import HeatPlot, TradeOffPlot
from sim.sweep.results import Design, Settings, SweepResults, same

# Points that are nearer to each other share one label.
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
    x_metric, y_metric = MetricName.of(plot.x), MetricName.of(plot.y)
    styles = Styles(design, plot.lines, [y_metric])
    x_axis = metric_axis(data, design, (x_metric,), scale=plot.x_scale, label=plot.x_label,
                         zero=Zero.IF_SHOWN)  # fmt: skip
    y_axis = metric_axis(data, design, (y_metric,), scale=plot.y_scale, label=plot.y_label,
                         zero=Zero.IF_SHOWN)  # fmt: skip
    sentences: list[str] = []

    def draw(part: PanelContent, layout: Layout) -> Panel:
        traces = []
        for line in styles.lines(part.design, [y_metric]):
            points = _points(data, plot, line, x_metric)
            knee = _knee(points, (x_metric, y_metric), (x_axis, y_axis)) if plot.knee else None
            traces.append(_Trace(line.style, points, knee))
        if plot.knee:
            where = setting_text(part.values, design.keys)
            sentences.extend(_knee_sentence(plot, trace, where) for trace in traces if trace.points)
        x, y = x_axis.axis, y_axis.axis
        marks = [
            *limit_marks(limit_of(data, (y_metric,)), y),
            *limit_marks(limit_of(data, (x_metric,)), x, "x"),
            *(mark for trace in traces for mark in _marks(trace, x_axis, y_axis)),
        ]
        labels = [label for trace in traces for label in _labels(plot, trace, (x, y), layout)]
        return Panel(x=x, y=y, marks=[*marks, *placed(labels, (x, y), layout.frame_px)])

    picture = draw_parts(parts_of(design, [plot.along, *plot.lines], [(y_metric,)]), draw)
    name = key_name(plot.along, design.keys)
    title = f"{y_metric.long_label} against {x_metric.long_label}, by {name}"
    intro = f"Points are labelled with {name}{_unit(plot.along)}."
    bars = seeds_caption(data, "thin bars", (x_axis, y_axis))
    slug = ("trade-off", name, plot.y, plot.x)
    slo = slo_caption(data, {(x_metric,): x_axis, (y_metric,): y_axis})
    captions = [intro, *sentences, slo, bars]
    return finished(picture, plot, design.keys, title, slug, captions, styles.legend)


def _points(
    data: SweepResults, plot: TradeOffPlot, line: PlotLine, x_metric: MetricName
) -> tuple[_TradeOffPoint, ...]:
    """The points at which both metrics are defined, in order of the key."""
    points = [
        _TradeOffPoint(
            setting, data.interval(setting, x_metric), data.interval(setting, line.metric)
        )
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
    x_intervals = [x_axis.shown(point.x) for point in trace.points]
    x = np.array([interval.mean for interval in x_intervals], dtype=np.float64)
    line = value_line(x, [y_axis.shown(point.y) for point in trace.points], style, size=6.0)
    y, x_along = segments(line.y, *interval_ends(x_intervals))
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


def _knee_sentence(plot: TradeOffPlot, trace: _Trace, where: str) -> str:
    """For the caption: the setting of the knee, or that the line has no knee."""
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


# A grid with more rows or columns has no numbers in its cells.
_MAX_WRITTEN = 12


def draw_heat(data: SweepResults, plot: HeatPlot) -> Drawn:
    """A cell for each pair of values, empty if the sweep has no result for it."""
    design = data.design.where(plot.where or {})
    metric = MetricName.of(plot.value)
    names = [key_name(key, design.keys) for key in (plot.x, plot.y)]
    if plot.against is not None:
        return _advantage(data, plot, design, names)
    (columns, no_column), (rows, no_row) = (
        values_with_results(data, design, key, [metric]) for key in (plot.x, plot.y)
    )
    columns, rows = in_order(plot.x, columns), in_order(plot.y, rows)
    x = _key_axis(plot.x, columns, plot.x_label, design)
    y = _key_axis(plot.y, rows, plot.y_label, design)
    means = [data.interval(setting, metric).mean for setting in design.settings]
    colours = _colour_axis(metric, [mean for mean in means if mean is not None], plot.scale)

    def draw(part: PanelContent, _: Layout) -> Panel:
        grid = np.full((len(rows), len(columns)), np.nan)
        for setting in part.design.settings:
            mean = data.interval(setting, metric).mean
            if mean is not None:
                grid[rows.index(setting[plot.y]), columns.index(setting[plot.x])] = mean
        cells = Cells(values=grid, texts=_cell_texts(grid, metric), colours=colours)
        return Panel(x=x, y=y, marks=[cells])

    picture = draw_parts(parts_of(design, [plot.x, plot.y], [(metric,)]), draw)
    sentences = ["Each cell has its value; an empty cell has none.",
                 without_value_caption(plot.x, no_column), without_value_caption(plot.y, no_row),
                 seeds_caption(data)]  # fmt: skip
    title = f"{metric.long_label} over {names[0]} and {names[1]}"
    return finished(picture, plot, design.keys, title, ("heat", *names, plot.value), sentences)


def _advantage(data: SweepResults, plot: HeatPlot, design: Design, names: Sequence[str]) -> Drawn:
    """The advantage over the settings of `against`, in percent."""
    columns, rows = (in_order(key, design.values(key)) for key in (plot.x, plot.y))
    grid = np.full((len(rows), len(columns)), math.nan)
    for row, y in enumerate(rows):
        for column, x in enumerate(columns):
            cell = design.where({plot.x: [x], plot.y: [y]})
            base = cell.where(plot.against or {})
            others = [one for one in cell.settings if one not in base.settings]
            grid[row, column] = _better_by(data, plot, base.settings, others)
    most = max(np.nanmax(np.abs(grid), initial=0.0), 1.0)
    metric = MetricName.of(plot.value)
    colours = Axis(label=f"advantage in {metric.long_label} (%)", limits=(-most, most),
                   ticks=[(at, number_text(at)) for at in round_ticks((-most, most))])  # fmt: skip
    texts = [[f"{value:+.0f} %" if math.isfinite(value) else "" for value in row] for row in grid]
    cells = Cells(values=grid, texts=texts, colours=colours, is_diverging=True)
    panel = Panel(x=_key_axis(plot.x, columns, plot.x_label, design),
                  y=_key_axis(plot.y, rows, plot.y_label, design), marks=[cells])  # fmt: skip
    over = where_text(plot.against or {}, data.design.keys)
    title = f"Advantage in {metric.long_label} over {over}"
    sentences = [
        f"Each cell compares the best of all other settings with the best of those with {over}.",
        seeds_caption(data),
    ]
    picture = draw_parts([PanelContent({}, design, (metric,))], lambda _part, _layout: panel)
    slug = ("advantage", *names, plot.value)
    return finished(picture, plot, data.design.keys, title, slug, sentences)


def _better_by(
    data: SweepResults, plot: HeatPlot, base: Sequence[Settings], others: Sequence[Settings]
) -> float:
    """By how many percent the best of others is better than the best of `base`; NaN: unknown."""
    metric = MetricName.of(plot.value)
    bests = []
    for settings in (base, others):
        means = [data.interval(one, metric).mean for one in settings]
        known = [mean for mean in means if mean is not None]
        best = max if metric.better is Better.HIGHER else min
        bests.append(best(known, default=0.0))
    if min(bests) <= 0:
        return math.nan
    more = bests[1] / bests[0]
    return 100 * ((more if metric.better is Better.HIGHER else 1 / more) - 1)


def _key_axis(key: str, values: Sequence[object], label: str | None, design: Design) -> Axis:
    """A column or a row for each value."""
    ticks = [(index, value_text(key, value)) for index, value in enumerate(values)]
    return Axis(label=label or key_label(key, design.keys), limits=(-0.5, len(values) - 0.5),
                ticks=ticks)  # fmt: skip


def _colour_axis(metric: MetricName, defined: Sequence[float], scale: str | None) -> Axis:
    is_log = wants_log(defined, scale)
    shown = [value for value in defined if value > 0 or not is_log] or [0.0, 1.0]
    low, high = min(shown), max(shown)
    limits = low, (high if high > low else low + 1)
    ticks = log_ticks(limits) if is_log else round_ticks(limits)
    return Axis(label=metric.long_label_with_unit + (", log scale" if is_log else ""),
                limits=limits, is_log=is_log,
                ticks=[(at, number_text(at)) for at in ticks])  # fmt: skip


def _cell_texts(grid: Float64, metric: MetricName) -> list[list[str]]:
    """The values, to three digits and from 1,000 on as whole numbers; none in a large grid."""
    if max(grid.shape) > _MAX_WRITTEN:
        return []

    def text(value: float) -> str:
        if not math.isfinite(value):
            return ""
        if metric.unit == "ms":
            return latency_text(value)
        return number_text(float(f"{value:.3g}") if abs(value) < 1_000 else float(round(value)))

    return [[text(value) for value in row] for row in grid.tolist()]
