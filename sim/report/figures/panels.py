"""A plot's panels: one for each metric and each combination of values of keys it does not name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.metrics.metric_name import MetricName
from sim.report.figures.canvas import MAX_COLUMNS, panel_grid
from sim.report.key_text import setting_text
from sim.report.plot_style import plain_text
from sim.sweep.design import Design, Settings


@dataclass(frozen=True, slots=True)
class Panel:
    """The content of one panel.

    Attributes:
        values: the values of the keys that divide the plot into panels.
        design: its settings.
        metrics: the metrics on its vertical axis.
    """

    values: Settings
    design: Design
    metrics: tuple[MetricName, ...]


def panels_of(
    design: Design, named: Sequence[str], metrics: Sequence[tuple[MetricName, ...]]
) -> list[Panel]:
    """Metric by metric, in the sweep's order."""
    divided = design.panels(named)
    return [Panel(values, part, group) for group in metrics for values, part in divided]


def draw_panels(panels: Sequence[Panel], draw: Callable[[Axes, Panel], None]) -> Figure:
    """Draw each panel on its axes."""
    num_metrics = len({panel.metrics for panel in panels})
    per_metric = len(panels) // num_metrics
    columns = per_metric if 1 < per_metric <= MAX_COLUMNS and num_metrics > 1 else None
    figure, grid = panel_grid(len(panels), columns)
    # This gives the axes their final size, by which `draw` places ticks.
    figure.draw_without_rendering()
    for axes, panel in zip(grid, panels, strict=True):
        draw(axes, panel)
        if panel.values:
            axes.set_title(plain_text(setting_text(panel.values, panel.design.keys)))
    return figure
