"""Lines of a plot: the settings of each line, its style, and its points."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sim.metrics.confidence import MeanInterval
from sim.metrics.metric_name import MetricName
from sim.report.figures.drawn import Part, parts_of
from sim.report.figures.marks import Axis, Mark, Panel, Style
from sim.report.figures.metric_axis import MetricAxis, Zero
from sim.report.figures.slo import limit_marks, limit_of, widened
from sim.report.figures.styles import numbered_style
from sim.report.key_text import key_label, key_name, setting_text
from sim.report.plot_check import panel_metrics
from sim.scenario.report_section import BarsPlot, CurvePlot, LoadPlot, ScatterPlot
from sim.sweep.design import Design, Settings, same
from sim.sweep.results import SweepResults

_OverKey: TypeAlias = BarsPlot | CurvePlot | LoadPlot | ScatterPlot
# A setting, and the interval of a metric there.
Point: TypeAlias = tuple[Settings, MeanInterval]


@dataclass(frozen=True, slots=True)
class PlotLine:
    """One line of a panel.

    Attributes:
        style: how it looks.
        metric: the metric that it shows.
        settings: one for each of its points.
    """

    style: Style
    metric: MetricName
    settings: tuple[Settings, ...]


class Styles:
    """Gives a line the same style in every panel of a plot.

    Args:
        design: all settings of the plot.
        keys: the keys that tell lines apart.
        metrics: all metrics of the plot; groups of requests differ in their dashes, or in their
            colours if no keys tell lines apart.
    """

    def __init__(self, design: Design, keys: Sequence[str], metrics: Sequence[MetricName]) -> None:
        self._keys = tuple(keys)
        self._values = [values for values, _ in design.divided(keys)]
        self._groups = list({metric.group: metric for metric in metrics}.values())
        self._all_keys = design.keys

    def of(self, values: Settings, metric: MetricName) -> Style:
        line = next(i for i, other in enumerate(self._values) if same(other) == same(values))
        group = next(i for i, other in enumerate(self._groups) if other.group == metric.group)
        text = setting_text(values, self._all_keys)
        if len(self._groups) < 2:
            return numbered_style(text, line)
        if not self._keys:
            return numbered_style(metric.group_label, group)
        return numbered_style(f"{text}: {metric.group_label}", line, group)

    @property
    def legend(self) -> list[Style]:
        """The styles of all lines, in the sweep's order."""
        return [self.of(values, metric) for values in self._values for metric in self._groups]

    def lines(self, panel: Design, metrics: Sequence[MetricName]) -> list[PlotLine]:
        """The lines of a panel."""
        return [
            PlotLine(self.of(values, metric), metric, part.settings)
            for values, part in panel.divided(self._keys)
            for metric in metrics
        ]


def intervals(data: SweepResults, line: PlotLine) -> list[Point]:
    """The points of a line at which its metric is defined, in the sweep's order."""
    found = [(setting, data.interval(setting, line.metric)) for setting in line.settings]
    return [(setting, interval) for setting, interval in found if interval.mean is not None]


def values_with_results(
    data: SweepResults, design: Design, key: str, metrics: Sequence[MetricName]
) -> tuple[list[object], list[object]]:
    """A key's values, in order: those at which a metric is defined, and those at which none is."""
    found: tuple[list[object], list[object]] = ([], [])
    for value in design.values(key):
        settings = [setting for setting in design.settings if same(setting[key]) == same(value)]
        is_defined = any(
            data.interval(setting, metric).mean is not None
            for setting in settings
            for metric in metrics
        )
        found[0 if is_defined else 1].append(value)
    # A figure without any value keeps its axis.
    return found if found[0] else (found[1], [])


class MetricPlot:
    """What plots of metrics over a key share: their settings, lines and vertical axes.

    Args:
        data: the sweep.
        plot: names the key, and the keys that tell lines apart.
        y: the metrics.
        zero: whether linear vertical axes begin at zero.
    """

    def __init__(
        self, data: SweepResults, plot: _OverKey, y: Sequence[str], zero: Zero = Zero.IF_NEAR
    ) -> None:
        self.data, self.plot = data, plot
        self.design = data.design.where(plot.where or {})
        self.metrics = panel_metrics(y)
        self.flat = [metric for group in self.metrics for metric in group]
        self.styles = Styles(self.design, plot.lines, self.flat)
        self.y_axes = {metrics: metric_axis(data, self.design, metrics, scale=plot.y_scale,
                                            label=plot.y_label, zero=zero)
                       for metrics in self.metrics}  # fmt: skip
        self.key = key_name(plot.x, self.design.keys)
        self.x_label = plot.x_label or key_label(plot.x, self.design.keys)

    def lines(self, part: Part) -> list[tuple[Style, list[Point]]]:
        """The lines of a panel: their points with the intervals that its axis can show."""
        axis = self.y_axes[part.metrics]
        return [
            (
                line.style,
                [(setting, axis.shown(each)) for setting, each in intervals(self.data, line)],
            )
            for line in self.styles.lines(part.design, part.metrics)
        ]

    def panel(self, part: Part, x: Axis, marks: Iterable[Mark]) -> Panel:
        """A panel with these marks, and a line at the limit that its metric has by the SLO."""
        y = self.y_axes[part.metrics].axis
        return Panel(x=x, y=y, marks=[*limit_marks(limit_of(self.data, part.metrics), y), *marks])

    @property
    def parts(self) -> list[Part]:
        return parts_of(self.design, [self.plot.x, *self.plot.lines], self.metrics)


def metric_axis(
    data: SweepResults, design: Design, metrics: Sequence[MetricName], *, scale: str | None,
    label: str | None, zero: Zero,
) -> MetricAxis:  # fmt: skip
    """The axis of a panel's metrics: the same in all panels that show them."""
    shown = [data.interval(setting, metric) for setting in design.settings for metric in metrics]
    return MetricAxis.of(
        metrics, widened(data, metrics, shown), scale=scale, label=label, zero=zero
    )
