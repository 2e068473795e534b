"""`kind: heat` with `against`: by how much the best of some settings is better than that of others.

Each cell has the settings with its values of two swept keys, whatever their values of all others.
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from sim.metrics.metric_name import MetricName
from sim.metrics.registry import Better
from sim.report.figures.canvas import Drawn, panel_grid
from sim.report.figures.captions import Words, finished, seeds_caption
from sim.report.figures.heat import draw_heat, ordered, tick
from sim.report.key_text import key_label, key_name, where_text
from sim.report.plot_style import plain_text, styled
from sim.scenario.report_section import HeatPlot
from sim.sweep.design import Design, Settings
from sim.sweep.results import SweepResults

# From blue to red through white, which the colour-blind can tell apart.
_COLOURS = "RdBu_r"


def draw_heat_or_advantage(data: SweepResults, plot: HeatPlot) -> Drawn:
    """A heat map of a metric, or of the advantage of some settings in it."""
    return draw_heat(data, plot) if plot.against is None else _draw(data, plot)


def advantages(
    data: SweepResults, design: Design, plot: HeatPlot
) -> tuple[list[object], list[object], np.ndarray]:
    """The columns, the rows, and the advantage of each cell in percent; NaN: there is none."""
    columns = ordered(plot.x, design.values(plot.x))
    rows = ordered(plot.y, design.values(plot.y))
    grid = np.full((len(rows), len(columns)), math.nan)
    for row, y in enumerate(rows):
        for column, x in enumerate(columns):
            cell = design.where({plot.x: [x], plot.y: [y]})
            base = cell.where(plot.against or {})
            others = [one for one in cell.settings if one not in base.settings]
            grid[row, column] = _advantage(data, plot, base.settings, others)
    return columns, rows, grid


def _advantage(
    data: SweepResults, plot: HeatPlot, base: Sequence[Settings], others: Sequence[Settings]
) -> float:
    metric = MetricName.of(plot.value)
    bests = []
    for settings in (base, others):
        means = [data.interval(one, metric).mean for one in settings]
        known = [mean for mean in means if mean is not None]
        best = max if metric.better is Better.HIGHER else min
        bests.append(best(known, default=0.0))
    if min(bests) <= 0:
        return math.nan
    more = bests[1] / bests[0]
    return 100 * ((more if metric.better is Better.HIGHER else 1 / more) - 1)


@styled
def _draw(data: SweepResults, plot: HeatPlot) -> Drawn:
    design = data.design.where(plot.where or {})
    columns, rows, grid = advantages(data, design, plot)
    most = max(np.nanmax(np.abs(grid), initial=0.0), 1.0)
    norm = TwoSlopeNorm(0.0, -most, most)
    figure, (axes,) = panel_grid(1, None)
    axes.imshow(grid, norm=norm, cmap=_COLOURS, aspect="auto", origin="lower")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(grid):
        if math.isfinite(value):
            red, green, blue, _ = colormaps[_COLOURS](float(norm(value)))
            is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            axes.text(column, row, f"{value:+.0f} %", ha="center", va="center", fontsize=10,
                      color="white" if is_dark else "black")  # fmt: skip
    axes.set_xticks(range(len(columns)), [tick(plot.x, value) for value in columns])
    axes.set_yticks(range(len(rows)), [tick(plot.y, value) for value in rows])
    axes.set_xlabel(plain_text(plot.x_label or key_label(plot.x, design.keys)))
    axes.set_ylabel(plain_text(plot.y_label or key_label(plot.y, design.keys)))
    return _finished(data, plot, figure, norm)


def _finished(data: SweepResults, plot: HeatPlot, figure: Figure, norm: TwoSlopeNorm) -> Drawn:
    keys, metric = data.design.keys, MetricName.of(plot.value)
    bar = figure.colorbar(ScalarMappable(norm, _COLOURS), ax=figure.axes, pad=0.02, aspect=30)
    bar.set_label(plain_text(f"advantage in {metric.long_label} (%)"))
    bar.outline.set_visible(False)
    base = where_text(plot.against or {}, keys)
    names = [key_name(key, keys) for key in (plot.x, plot.y)]
    title = f"Advantage in {metric.long_label} over {base}"
    sentences = [
        f"Each cell compares the best of all other settings with the best of those with {base}.",
        seeds_caption(data),
    ]
    return finished(figure, plot, Words(title, ("advantage", *names, plot.value), sentences), keys)
