"""`kind: heat`: one metric as colour over two swept keys."""

import math

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import FuncFormatter, NullFormatter

from sim.metrics.metric_name import MetricName
from sim.report.figures.canvas import Drawn
from sim.report.figures.captions import Words, finished, seeds_caption, without_value_caption
from sim.report.figures.lines import values_with_results
from sim.report.figures.panels import Panel, draw_panels, panels_of
from sim.report.figures.scales import wants_log
from sim.report.key_text import key_label, key_name, number_of, number_text, value_text
from sim.report.plot_check import is_number
from sim.report.plot_style import latency_text, plain_text, styled
from sim.scenario.report_section import HeatPlot
from sim.sweep.results import SweepResults

# A colour map from dark to light, which the colour-blind can read too.
_COLOURS = "cividis"
# A grid with more rows or columns has no numbers in its cells.
_MAX_WRITTEN = 12


@styled
def draw_heat(data: SweepResults, plot: HeatPlot) -> Drawn:
    """A cell for each pair of values, empty if the sweep has no result for it."""
    design = data.design.where(plot.where or {})
    metric = MetricName.of(plot.value)
    means = [data.interval(setting, metric).mean for setting in design.settings]
    defined = [mean for mean in means if mean is not None]
    norm = _norm(defined, plot.scale)
    (columns, no_column), (rows, no_row) = (
        values_with_results(data, design, key, [metric]) for key in (plot.x, plot.y)
    )
    columns, rows = ordered(plot.x, columns), ordered(plot.y, rows)

    def draw(axes: Axes, panel: Panel) -> None:
        _draw_cells(axes, _grid(data, plot, panel, columns, rows), norm, metric)
        axes.set_xticks(range(len(columns)), [tick(plot.x, value) for value in columns])
        axes.set_yticks(range(len(rows)), [tick(plot.y, value) for value in rows])
        axes.set_xlabel(plain_text(plot.x_label or key_label(plot.x, design.keys)))
        axes.set_ylabel(plain_text(plot.y_label or key_label(plot.y, design.keys)))

    figure = draw_panels(panels_of(design, [plot.x, plot.y], [(metric,)]), draw)
    bar = figure.colorbar(ScalarMappable(norm, _COLOURS), ax=figure.axes, pad=0.02, aspect=30)
    scale = ", log scale" if isinstance(norm, LogNorm) else ""
    bar.set_label(plain_text(f"{metric.long_label_with_unit}{scale}"))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.outline.set_visible(False)
    names = [key_name(key, design.keys) for key in (plot.x, plot.y)]
    title = f"{metric.long_label} over {names[0]} and {names[1]}"
    sentences = ["Each cell has its value; an empty cell has none.",
                 without_value_caption(plot.x, no_column), without_value_caption(plot.y, no_row),
                 seeds_caption(data)]  # fmt: skip
    slug = ("heat", *names, plot.value)
    return finished(figure, plot, Words(title, slug, sentences), design.keys)


def _norm(defined: list[float], scale: str | None) -> Normalize:
    if not defined:
        return Normalize(0, 1)
    low, high = min(defined), max(defined)
    if wants_log(defined, scale):
        return LogNorm(min(value for value in defined if value > 0), high, clip=True)
    return Normalize(low, high if high > low else low + 1)


def ordered(key: str, values: list[object]) -> list[object]:
    """Numbers by size, infinity and null last; other values in the sweep's order."""
    if all(value is None or is_number(value) for value in values):
        return sorted(values, key=lambda value: (math.isnan(n := number_of(key, value)), n))
    return values


def _grid(
    data: SweepResults, plot: HeatPlot, panel: Panel, columns: list[object], rows: list[object]
) -> np.ndarray:
    """The cells' means, shape [num_rows, num_columns]; NaN for an empty cell."""
    grid = np.full((len(rows), len(columns)), np.nan)
    for setting in panel.design.settings:
        mean = data.interval(setting, panel.metrics[0]).mean
        if mean is not None:
            grid[rows.index(setting[plot.y]), columns.index(setting[plot.x])] = mean
    return grid


def _draw_cells(axes: Axes, grid: np.ndarray, norm: Normalize, metric: MetricName) -> None:
    axes.imshow(grid, norm=norm, cmap=_COLOURS, aspect="auto", origin="lower")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if max(grid.shape) > _MAX_WRITTEN:
        return
    for (row, column), value in np.ndenumerate(grid):
        if math.isfinite(value):
            text = latency_text(value) if metric.unit == "ms" else number_text(_rounded(value))
            red, green, blue, _ = colormaps[_COLOURS](float(norm(value)))
            is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            axes.text(column, row, text, ha="center", va="center", fontsize=8.5,
                      color="white" if is_dark else "black")  # fmt: skip


def _rounded(value: float) -> float:
    """The value rounded to three digits, from 1,000 on to a whole number."""
    return float(f"{value:.3g}") if abs(value) < 1_000 else float(round(value))


def tick(key: str, value: object) -> str:
    """The text of a column or a row."""
    return plain_text(value_text(key, value))
