"""`kind: bars`: metrics by the values of any swept key, with intervals over the seeds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sim.report.figures.canvas import (
    Drawn,
    caption_of,
    joined,
    put_header,
    seeds_caption,
    slug_of,
    where_of,
)
from sim.report.figures.lines import Line, Styles, ends, intervals
from sim.report.figures.panels import Panel, draw_panels, panels_of
from sim.report.figures.scales import KeyAxis, show_metric, wants_log
from sim.report.plot_check import panel_metrics
from sim.report.plot_style import styled
from sim.report.sweep_data import SweepData
from sim.report.words import key_label, key_name
from sim.scenario.report_section import BarsPlot

# Of the room between two values.
_GROUP_WIDTH = 0.8
_ERROR_BARS: Mapping[str, Any] = {
    "linestyle": "none",
    "color": "#333333",
    "linewidth": 1.2,
    "capsize": 3,
}


@styled
def draw_bars(data: SweepData, plot: BarsPlot) -> Drawn:
    """Bars from zero, or dots where the axis is logarithmic."""
    design = data.design.where(plot.where or {})
    metrics = panel_metrics(plot.y)
    styles = Styles(design, plot.lines, [metric for group in metrics for metric in group])
    axis = KeyAxis.of_names(plot.x, design.values(plot.x))

    def draw(axes: Axes, panel: Panel) -> None:
        lines = styles.lines(panel.design, panel.metrics)
        shown = [end for line in lines for _, found in intervals(data, line) for end in ends(found)]
        as_dots = wants_log(shown, plot.y_scale)
        for number, line in enumerate(lines):
            offset = (number - (len(lines) - 1) / 2) * _GROUP_WIDTH / len(lines)
            _draw_one(axes, axis, data, line, offset, _GROUP_WIDTH / len(lines), as_dots)
        axis.show(axes, plot.x_label or key_label(plot.x, design.keys), margin=0.0)
        axes.set_xlim(-0.6, len(axis.places) - 0.4)
        axes.grid(visible=False, axis="x")
        show_metric(axes, "y", shown, panel.metrics, scale=plot.y_scale, label=plot.y_label,
                    from_zero=True)  # fmt: skip

    figure = draw_panels(panels_of(design, [plot.x, *plot.lines], metrics), draw)
    name = key_name(plot.x, design.keys)
    title = plot.title or f"{joined([group[0].label for group in metrics])} by {name}"
    put_header(figure, title, styles.legend)
    sentences = [seeds_caption(data, "error bars")]
    caption = caption_of(plot.caption, sentences, where_of(plot.where, design.keys))
    return Drawn(figure, slug_of("bars", name, *plot.y[:2]), title, caption)


def _draw_one(
    axes: Axes, axis: KeyAxis, data: SweepData, line: Line, offset: float, width: float,
    as_dots: bool,
) -> None:  # fmt: skip
    found = intervals(data, line)
    x = np.array([axis.place(setting[axis.key]) for setting, _ in found]) + offset
    y = np.array([interval.mean for _, interval in found], dtype=np.float64)
    if as_dots:
        axes.plot(x, y, line.style.marker, color=line.style.colour, markersize=7)
    else:
        bars = axes.bar(x, y, 0.92 * width, color=line.style.colour)
        if line.style.dash != "-":
            for bar in bars:
                bar.set_hatch("//")
                bar.set_edgecolor("white")
    if any(interval.half_width for _, interval in found):
        axes.errorbar(x, y, yerr=[interval.half_width or 0.0 for _, interval in found],
                      **_ERROR_BARS)  # fmt: skip
