"""`kind: cdf`: how a latency is distributed over requests."""

from collections.abc import Iterator, Sequence

import numpy as np

from sim.metrics.registry import MetricName
from sim.metrics.summary import PERCENTS
from sim.report.figures.axes import value_axis, wants_log
from sim.report.figures.key_text import key_name, latency_text
from sim.report.figures.marks import GREY, Axis, Guide, Line, Mark, Note, Panel, Style, Values
from sim.report.figures.plot_check import ALL
from sim.report.figures.plot_parts import (
    Drawn,
    Layout,
    PanelContent,
    Styles,
    draw_parts,
    finished,
    joined,
    limit_marks,
    parts_of,
    titled,
)
from sim.scenario.report_section import CdfPlot
from sim.sweep.results import Design, SweepResults

P99 = 99
P99_LINE: Sequence[Mark] = (
    Guide(axis="y", at=P99, colour=GREY),
    Note(text="p99", x=1, y=P99, colour=GREY, dx=3, x_is_share=True),
)
_AT_P99 = PERCENTS.index(P99)


def draw_cdf(data: SweepResults, plot: CdfPlot) -> Drawn:
    """A curve for each line and group of requests, its 99th percentile marked."""
    design = data.design.where(plot.where or {})
    metrics = [_of_group(plot.metric, group) for group in plot.of]
    styles = Styles(design, plot.lines, metrics)
    x_axis = _latency_axis(data, plot, design, metrics)
    y_axis = percent_axis("token gaps (%)" if plot.metric == "itl_ms" else "requests (%)")
    limit = next(
        (ms for name, ms in data.slo_limits.items() if name.endswith(f"_{plot.metric}")), None
    )

    def draw(part: PanelContent, _: Layout) -> Panel:
        marks = [*P99_LINE, *limit_marks(limit, x_axis, "x")]
        for line in styles.lines(part.design, metrics):
            for setting in line.settings:
                found = data.quantiles(setting, plot.metric, line.metric.group)
                if found is not None:
                    marks += distribution(found, PERCENTS, found[_AT_P99], line.style)
        return Panel(x=x_axis, y=y_axis, marks=marks)

    picture = draw_parts(parts_of(design, plot.lines, [tuple(metrics)]), draw)
    sentences = ["The share up to each latency; dots mark the 99th percentile."]
    if limit is not None and x_axis.limits[0] <= limit <= x_axis.limits[1]:
        sentences.append(f"The dashed red line is the SLO, {latency_text(limit)}.")
    if data.num_seeds > 1:
        sentences.append(f"Quantiles are means over {data.num_seeds} seeds.")
    names = [key.rpartition(".")[2] for key in plot.lines]
    by = joined([key_name(key, design.keys) for key in plot.lines])
    title = f"Distribution of {titled([metrics])}" + (f" by {by}" if by else "")
    slug = ("cdf", plot.metric, *plot.of, *names)
    return finished(picture, plot, design.keys, title, slug, sentences, styles.legend)


def distribution(values: Values, percent: Values, p99: float, style: Style) -> Iterator[Line]:
    """A curve of shares of requests up to each value, and a dot at its 99th percentile."""
    yield Line(x=values, y=percent, colour=style.colour, line=style.label, has_values=True,
               dash=style.dash)  # fmt: skip
    yield Line(x=[p99], y=[P99], colour=style.colour, line=style.label, width=0,
               marker=style.marker or "o", fill=style.fill, on_top=True)  # fmt: skip


def percent_axis(label: str) -> Axis:
    """From 0 % to a little above 100 %."""
    ticks = [(at, f"{at:.0f}") for at in np.linspace(0, 100, 5).tolist()]
    return Axis(label=label, limits=(0.0, 103.0), ticks=ticks)


def _latency_axis(
    data: SweepResults, plot: CdfPlot, design: Design, metrics: Sequence[MetricName]
) -> Axis:
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
    return value_axis(metrics, shown, scale=plot.x_scale, label=plot.x_label)


def _of_group(metric: str, group: str) -> MetricName:
    """A name for a latency of a group of requests. It labels axes; no summary has such a metric."""
    return MetricName.of(metric if group == ALL else f"{group}.{metric}")
