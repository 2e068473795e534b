"""`kind: cdf`: how a latency is distributed over requests."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from sim.metrics.distributions import PERCENTS
from sim.metrics.metric_name import MetricName
from sim.report.figures.canvas import Drawn
from sim.report.figures.captions import Words, finished, joined, titled
from sim.report.figures.cdf_frame import P99, draw_p99_dot, draw_p99_line, put_percent_axis
from sim.report.figures.lines import Styles
from sim.report.figures.metric_axis import MetricAxis
from sim.report.figures.ownership import own
from sim.report.figures.panels import Panel, draw_panels, panels_of
from sim.report.figures.scales import wants_log
from sim.report.figures.slo import draw_limit
from sim.report.key_text import key_name
from sim.report.plot_check import ALL
from sim.report.plot_style import latency_text, styled
from sim.scenario.report_section import CdfPlot
from sim.sweep.design import Design
from sim.sweep.results import SweepResults

_AT_P99 = PERCENTS.index(P99)


@styled
def draw_cdf(data: SweepResults, plot: CdfPlot) -> Drawn:
    """A curve for each line and group of requests, its 99th percentile marked."""
    design = data.design.where(plot.where or {})
    metrics = [_of_group(plot.metric, group) for group in plot.of]
    styles = Styles(design, plot.lines, metrics)
    x_axis = _latency_axis(data, plot, design, metrics)
    limit = next(
        (ms for name, ms in data.slo_limits.items() if name.endswith(f"_{plot.metric}")), None
    )

    def draw(axes: Axes, panel: Panel) -> None:
        draw_p99_line(axes)
        for line in styles.lines(panel.design, metrics):
            for setting in line.settings:
                found = data.quantiles(setting, plot.metric, line.metric.group)
                if found is None:
                    continue
                axes.plot(found, PERCENTS, color=line.style.colour, linestyle=line.style.dash,
                          label=own(line.style.label))  # fmt: skip
                draw_p99_dot(axes, found[_AT_P99], line.style)
        x_axis.show(axes, "x")
        if limit is not None:
            draw_limit(axes, limit, "x")
        put_percent_axis(axes, "token gaps (%)" if plot.metric == "itl_ms" else "requests (%)")

    figure = draw_panels(panels_of(design, plot.lines, [tuple(metrics)]), draw)
    sentences = ["The share up to each latency; dots mark the 99th percentile."]
    if limit is not None and x_axis.limits[0] <= limit <= x_axis.limits[1]:
        sentences.append(f"The dashed red line is the SLO, {latency_text(limit)}.")
    if data.num_seeds > 1:
        sentences.append(f"Quantiles are means over {data.num_seeds} seeds.")
    names = [key.rpartition(".")[2] for key in plot.lines]
    words = Words(_title(plot, metrics, design), ("cdf", plot.metric, *plot.of, *names), sentences)
    return finished(figure, plot, words, design.keys, styles.legend)


def _latency_axis(
    data: SweepResults, plot: CdfPlot, design: Design, metrics: Sequence[MetricName]
) -> MetricAxis:
    """An axis from the 1st percentile on, so that one quick request cannot take half of it."""
    found = [
        data.quantiles(setting, plot.metric, metric.group)
        for setting in design.settings
        for metric in metrics
    ]
    values = [value for quantiles in found if quantiles is not None
              for value in quantiles[[1, -1]].tolist()]  # fmt: skip
    positive = [value for value in values if value > 0]
    shown = positive if wants_log(positive, plot.x_scale) else values
    return MetricAxis.of_values(metrics, shown, scale=plot.x_scale, label=plot.x_label)


def _of_group(metric: str, group: str) -> MetricName:
    """A name for a latency of a group of requests. It labels axes; no summary has such a metric."""
    return MetricName.of(metric if group == ALL else f"{group}.{metric}")


def _title(plot: CdfPlot, metrics: Sequence[MetricName], design: Design) -> str:
    by = joined([key_name(key, design.keys) for key in plot.lines])
    return f"Distribution of {titled([metrics])}" + (f" by {by}" if by else "")
