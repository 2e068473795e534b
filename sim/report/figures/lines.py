"""Lines of a plot: the settings of each line, its style, and its points."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from sim.metrics.confidence import MeanInterval
from sim.metrics.metric_name import MetricName
from sim.report.figures.canvas import Style, numbered_style
from sim.report.figures.metric_axis import MetricAxis, Zero
from sim.report.figures.slo import draw_limit, limit_of, widened
from sim.report.key_text import setting_text
from sim.sweep.design import Design, Settings, same
from sim.sweep.results import SweepResults


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


def intervals(data: SweepResults, line: PlotLine) -> list[tuple[Settings, MeanInterval]]:
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


def metric_axes(
    data: SweepResults,
    design: Design,
    panels: Sequence[tuple[MetricName, ...]],
    *,
    scale: str | None,
    label: str | None,
    zero: Zero = Zero.IF_NEAR,
) -> dict[tuple[MetricName, ...], MetricAxis]:
    """The vertical axis of each panel's metrics: the same in all panels that show them."""
    return {
        metrics: MetricAxis.of(
            metrics,
            widened(
                data,
                metrics,
                [
                    data.interval(setting, metric)
                    for setting in design.settings
                    for metric in metrics
                ],
            ),
            scale=scale,
            label=label,
            zero=zero,
        )
        for metrics in panels
    }


def show_metric(
    axes: Axes, axis: MetricAxis, data: SweepResults, metrics: Sequence[MetricName]
) -> None:
    """Set up the vertical axis of a panel, with a line at the limit that its SLO has."""
    axis.show(axes, "y")
    limit = limit_of(data, metrics)
    if limit is not None:
        draw_limit(axes, limit)
