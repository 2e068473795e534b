"""`kind: scatter`: metrics against a swept key, for all values of the other keys."""

from matplotlib.axes import Axes

from sim.report.figures.canvas import Drawn
from sim.report.figures.captions import Words, finished, joined, seeds_caption, titled
from sim.report.figures.lines import Styles, intervals, metric_axes, show_metric
from sim.report.figures.ownership import own
from sim.report.figures.panels import Panel, draw_panels
from sim.report.figures.scales import KeyAxis
from sim.report.figures.slo import slo_caption
from sim.report.key_text import key_label, key_name
from sim.report.plot_check import panel_metrics
from sim.report.plot_style import styled
from sim.scenario.report_section import ScatterPlot
from sim.sweep.results import SweepResults


@styled
def draw_scatter(data: SweepResults, plot: ScatterPlot) -> Drawn:
    """A dot for each setting."""
    design = data.design.where(plot.where or {})
    metrics = panel_metrics(plot.y)
    styles = Styles(design, plot.lines, [metric for group in metrics for metric in group])
    axis = KeyAxis.of_numbers(plot.x, design.values(plot.x), plot.x_scale)
    y_axes = metric_axes(data, design, metrics, scale=plot.y_scale, label=plot.y_label)

    def draw(axes: Axes, panel: Panel) -> None:
        for line in styles.lines(panel.design, panel.metrics):
            found = intervals(data, line)
            x = [axis.place(setting[plot.x]) for setting, _ in found]
            y = [interval.mean or 0.0 for _, interval in found]
            edge = "white" if line.style.fill == "full" else line.style.colour
            axes.plot(x, y, line.style.marker, color=line.style.colour, markersize=6, alpha=0.75,
                      markeredgecolor=edge, markeredgewidth=0.5, fillstyle=line.style.fill,
                      label=own(line.style.label))  # fmt: skip
        axis.show(axes, plot.x_label or key_label(plot.x, design.keys))
        show_metric(axes, y_axes[panel.metrics], data, panel.metrics)

    figure = draw_panels([Panel({}, design, group) for group in metrics], draw)
    name = key_name(plot.x, design.keys)
    others = [key_name(key, design.keys) for key in design.keys if key not in (plot.x, *plot.lines)]
    sentences = ["Each dot is a setting.", f"Also varied: {joined(others)}." if others else "",
             slo_caption(data, y_axes), seeds_caption(data)]  # fmt: skip
    slug = ("scatter", name, *plot.y[:2])
    words = Words(f"{titled(metrics)} against {name}", slug, sentences)
    return finished(figure, plot, words, design.keys, styles.legend)
