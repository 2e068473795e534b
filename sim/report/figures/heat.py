"""`kind: heat`: a metric over two swept keys as colour; with `against`: an advantage in it.

The advantage is by how much the best of all other settings is better than the best of some. Each
cell has the settings with its values of the two keys, whatever their values of all others.
"""

import math
from collections.abc import Sequence

import numpy as np

from sim.core.arrays import Float64
from sim.metrics.metric_name import MetricName
from sim.metrics.registry import Better
from sim.report.figures.axes import in_order, log_ticks, round_ticks, wants_log
from sim.report.figures.drawn import (
    Drawn,
    Layout,
    PanelContent,
    draw_parts,
    finished,
    parts_of,
    seeds_caption,
    without_value_caption,
)
from sim.report.figures.key_text import (
    key_label,
    key_name,
    latency_text,
    number_text,
    value_text,
    where_text,
)
from sim.report.figures.lines import values_with_results
from sim.report.figures.marks import Axis, Cells, Panel
from sim.scenario.report_section import HeatPlot
from sim.sweep.results import Design, Settings, SweepResults

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
    x, y = (
        _key_axis(plot.x, columns, plot.x_label, design),
        _key_axis(plot.y, rows, plot.y_label, design),
    )
    columns, rows = in_order(plot.x, columns), in_order(plot.y, rows)
    means = [data.interval(setting, metric).mean for setting in design.settings]
    colours = _colour_axis(metric, [mean for mean in means if mean is not None], plot.scale)

    def draw(part: PanelContent, _: Layout) -> Panel:
        grid = np.full((len(rows), len(columns)), np.nan)
        for setting in part.design.settings:
            mean = data.interval(setting, metric).mean
            if mean is not None:
                grid[rows.index(setting[plot.y]), columns.index(setting[plot.x])] = mean
        cells = Cells(values=grid, texts=_texts(grid, metric), colours=colours)
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
    ticks = [(place, value_text(key, value)) for place, value in enumerate(in_order(key, values))]
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


def _texts(grid: Float64, metric: MetricName) -> list[list[str]]:
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
