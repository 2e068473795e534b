"""`kind: bars`: metrics by the values of any swept key, with intervals over the seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sim.metrics.confidence import MeanInterval
from sim.report.figures.canvas import Drawn
from sim.report.figures.captions import (
    Words,
    finished,
    seeds_caption,
    titled,
    without_value_caption,
)
from sim.report.figures.lines import (
    PlotLine,
    Styles,
    intervals,
    metric_axes,
    show_metric,
    values_with_results,
)
from sim.report.figures.metric_axis import Zero
from sim.report.figures.ownership import beside, own
from sim.report.figures.panels import Panel, draw_panels, panels_of
from sim.report.figures.scales import KeyAxis
from sim.report.figures.slo import slo_caption
from sim.report.key_text import key_label, key_name
from sim.report.plot_check import panel_metrics
from sim.report.plot_style import styled
from sim.scenario.report_section import BarsPlot
from sim.sweep.design import Settings
from sim.sweep.results import SweepResults

# The share of the distance between two values of `x` that bars fill.
_GROUP_WIDTH = 0.8
_ERROR_BARS: Mapping[str, Any] = {
    "linestyle": "none",
    "color": "#333333",
    "linewidth": 1.2,
    "capsize": 3,
}


@styled
def draw_bars(data: SweepResults, plot: BarsPlot) -> Drawn:
    """Bars from zero, or dots where the axis is logarithmic."""
    design = data.design.where(plot.where or {})
    metrics = panel_metrics(plot.y)
    flat = [metric for group in metrics for metric in group]
    styles = Styles(design, plot.lines, flat)
    shown, empty = values_with_results(data, design, plot.x, flat)
    axis = KeyAxis.of_names(plot.x, shown)

    y_axes = metric_axes(data, design, metrics, scale=plot.y_scale, label=plot.y_label,
                          zero=Zero.ALWAYS)  # fmt: skip

    def draw(axes: Axes, panel: Panel) -> None:
        lines = styles.lines(panel.design, panel.metrics)
        y_axis = y_axes[panel.metrics]
        width = _GROUP_WIDTH / len(lines)
        for number, line in enumerate(lines):
            offset = (number - (len(lines) - 1) / 2) * width
            found = [(setting, y_axis.shown(each)) for setting, each in intervals(data, line)]
            _draw_one(axes, axis, line, found, offset, width, as_dots=y_axis.is_log)
        axis.show(axes, plot.x_label or key_label(plot.x, design.keys))
        axes.set_xlim(-0.6, len(axis.places) - 0.4)
        axes.grid(visible=False, axis="x")
        show_metric(axes, y_axis, data, panel.metrics)

    figure = draw_panels(panels_of(design, [plot.x, *plot.lines], metrics), draw)
    name = key_name(plot.x, design.keys)
    words = Words(f"{titled(metrics)} by {name}", ("bars", name, *plot.y[:2]),
                  [without_value_caption(plot.x, empty), slo_caption(data, y_axes),
                   seeds_caption(data, "error bars", y_axes.values())])  # fmt: skip
    as_patches = not any(y_axis.is_log for y_axis in y_axes.values())
    return finished(figure, plot, words, design.keys, styles.legend, as_patches=as_patches)


def _draw_one(
    axes: Axes, axis: KeyAxis, line: PlotLine, found: Sequence[tuple[Settings, MeanInterval]],
    offset: float, width: float, *, as_dots: bool,
) -> None:  # fmt: skip
    x = np.array([axis.place(setting[axis.key]) for setting, _ in found]) + offset
    y = np.array([interval.mean for _, interval in found], dtype=np.float64)
    if as_dots:
        axes.plot(x, y, line.style.marker, color=line.style.colour, markersize=7,
                  fillstyle=line.style.fill, label=own(line.style.label))  # fmt: skip
    else:
        bars = axes.bar(x, y, 0.92 * width, color=line.style.colour, label=own(line.style.label))
        if line.style.hatch:
            for bar in bars:
                bar.set_hatch(line.style.hatch)
                bar.set_edgecolor("white")
    if any(interval.half_width for _, interval in found):
        axes.errorbar(x, y, yerr=[interval.half_width or 0.0 for _, interval in found],
                      label=beside(line.style.label), **_ERROR_BARS)  # fmt: skip
