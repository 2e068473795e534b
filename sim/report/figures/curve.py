"""`kind: curve`: metrics against a swept number, with bands over the seeds."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sim.metrics.confidence import MeanInterval
from sim.report.figures.canvas import Drawn, Style
from sim.report.figures.captions import Words, finished, seeds_caption, titled
from sim.report.figures.covered import uncover
from sim.report.figures.lines import Styles, intervals, metric_axes, show_metric
from sim.report.figures.ownership import beside, own
from sim.report.figures.panels import Panel, draw_panels, panels_of
from sim.report.figures.scales import KeyAxis
from sim.report.figures.slo import slo_caption
from sim.report.key_text import key_label, key_name
from sim.report.plot_check import panel_metrics
from sim.report.plot_style import styled
from sim.scenario.report_section import CurvePlot
from sim.sweep.design import Settings
from sim.sweep.results import SweepResults


@styled
def draw_curve(data: SweepResults, plot: CurvePlot) -> Drawn:
    """Lines over the values of `x`."""
    design = data.design.where(plot.where or {})
    metrics = panel_metrics(plot.y)
    styles = Styles(design, plot.lines, [metric for group in metrics for metric in group])
    axis = KeyAxis.of_numbers(plot.x, design.values(plot.x), plot.x_scale)
    y_axes = metric_axes(data, design, metrics, scale=plot.y_scale, label=plot.y_label)
    label = plot.x_label or key_label(plot.x, design.keys)

    def draw(axes: Axes, panel: Panel) -> None:
        y_axis = y_axes[panel.metrics]
        drawn = []
        for line in styles.lines(panel.design, panel.metrics):
            found = [(setting, y_axis.shown(each)) for setting, each in intervals(data, line)]
            drawn.append(draw_line(axes, axis, found, line.style))
        axis.show(axes, label)
        show_metric(axes, y_axis, data, panel.metrics)
        uncover(axes, drawn)

    figure = draw_panels(panels_of(design, [plot.x, *plot.lines], metrics), draw)
    name = key_name(plot.x, design.keys)
    words = Words(f"{titled(metrics)} against {name}", ("curve", name, *plot.y[:2]),
                  [slo_caption(data, y_axes),
                   seeds_caption(data, "bands", y_axes.values())])  # fmt: skip
    return finished(figure, plot, words, design.keys, styles.legend)


def draw_line(
    axes: Axes, axis: KeyAxis, found: Sequence[tuple[Settings, MeanInterval]], style: Style
) -> list[Line2D]:
    """Points with bands, joined from left to right; the line is dotted over a gap of the axis.

    Returns:
        what was drawn: first the points.
    """
    ordered = sorted(found, key=lambda item: axis.place(item[0][axis.key]))
    x = np.array([axis.place(setting[axis.key]) for setting, _ in ordered])
    y = np.array([interval.mean for _, interval in ordered], dtype=np.float64)
    detached = [axis.is_detached(setting[axis.key]) for setting, _ in ordered]
    draw_band(axes, x, [interval for _, interval in ordered], style)
    parts = axes.plot(x, y, linestyle="none", marker=style.marker, color=style.colour,
                      markersize=5, fillstyle=style.fill, label=own(style.label))  # fmt: skip
    for i in range(1, len(x)):
        apart = detached[i - 1] != detached[i]
        parts += axes.plot(x[i - 1 : i + 1], y[i - 1 : i + 1], color=style.colour,
                           label=beside(style.label),
                           linestyle=(0, (1, 2)) if apart else style.dash)  # fmt: skip
    return parts


def draw_band(axes: Axes, x: np.ndarray, found: Sequence[MeanInterval], style: Style) -> None:
    """A band through the intervals of points from left to right; a single point gets a bar."""
    low, high = zip(*(interval.ends for interval in found), strict=True) if found else ((), ())
    if len(found) == 1:
        axes.vlines(x, low, high, color=style.colour, alpha=0.5, linewidth=4,
                    label=beside(style.label))  # fmt: skip
    elif any(interval.half_width for interval in found):
        axes.fill_between(x, low, high, color=style.colour, alpha=0.16, linewidth=0,
                          label=beside(style.label))  # fmt: skip
