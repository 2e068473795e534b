"""`kind: cdf`: how a latency is distributed over requests."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from sim.report.distributions import PERCENTS
from sim.report.figures.canvas import Drawn, caption_of, put_header, slug_of, where_of
from sim.report.figures.lines import Styles
from sim.report.figures.panels import Panel, draw_panels, panels_of
from sim.report.figures.scales import show_metric, wants_log
from sim.report.metric_names import MetricName
from sim.report.plot_check import ALL
from sim.report.plot_style import GREY, styled
from sim.report.sweep_data import SweepData
from sim.scenario.report_section import CdfPlot

_P99 = 99
_AT_P99 = PERCENTS.index(_P99)


@styled
def draw_cdf(data: SweepData, plot: CdfPlot) -> Drawn:
    """A curve a line and a part of the requests, its 99th percentile marked."""
    design = data.design.where(plot.where or {})
    metrics = [_of_group(plot.metric, group) for group in plot.of]
    styles = Styles(design, plot.lines, metrics)

    def draw(axes: Axes, panel: Panel) -> None:
        axes.axhline(_P99, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate("p99", (1, _P99), xycoords=("axes fraction", "data"), xytext=(3, 0),
                      textcoords="offset points", va="center", color=GREY)  # fmt: skip
        shown: list[float] = []
        for line in styles.lines(panel.design, metrics):
            for setting in line.settings:
                found = data.quantiles(setting, plot.metric, line.metric.group)
                if found is None:
                    continue
                shown += found[[1, -1]].tolist()
                axes.plot(found, PERCENTS, color=line.style.colour, linestyle=line.style.dash)
                axes.plot(found[_AT_P99], _P99, line.style.marker, color=line.style.colour,
                          markersize=6, markeredgecolor="white", zorder=3)  # fmt: skip
        # On a logarithmic axis, the quickest request alone would take half of the room.
        show_metric(axes, "x", _shown(shown, plot), metrics, scale=plot.x_scale,
                    label=plot.x_label)  # fmt: skip
        axes.set_ylim(0, 103)
        axes.set_yticks([0, 25, 50, 75, 100])
        axes.set_ylabel("token gaps (%)" if plot.metric == "itl_ms" else "requests (%)")

    figure = draw_panels(panels_of(design, plot.lines, [tuple(metrics)]), draw)
    title = plot.title or f"{_title(metrics)}: distribution"
    put_header(figure, title, styles.legend)
    words = ["The share up to each latency; dots mark the 99th percentile."]
    if data.num_seeds > 1:
        words.append(f"Quantiles are means over {data.num_seeds} seeds.")
    caption = caption_of(plot.caption, words, where_of(plot.where, design.keys))
    names = [key.rpartition(".")[2] for key in plot.lines]
    return Drawn(figure, slug_of("cdf", plot.metric, *plot.of, *names), title, caption)


def _shown(values: list[float], plot: CdfPlot) -> list[float]:
    """Without zeros where the axis is to be logarithmic."""
    positive = [value for value in values if value > 0]
    return positive if wants_log(positive, plot.x_scale) else values


def _of_group(metric: str, group: str) -> MetricName:
    """The latency itself has no value in a summary; its name gives the axis its words."""
    return MetricName.of(metric if group == ALL else f"{group}.{metric}")


def _title(metrics: Sequence[MetricName]) -> str:
    return metrics[0].long_label if len(metrics) == 1 else metrics[0].label
