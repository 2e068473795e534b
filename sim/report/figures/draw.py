"""Every kind of plot in a `report` section, with the function that draws it."""

from collections.abc import Callable, Mapping
from typing import Any

from sim.report.figures.bars import draw_bars
from sim.report.figures.cdf import draw_cdf
from sim.report.figures.curve import draw_curve, draw_scatter
from sim.report.figures.drawn import Drawn
from sim.report.figures.heat import draw_heat
from sim.report.figures.load import draw_load
from sim.report.figures.trade_off import draw_trade_off
from sim.scenario.report_section import Plot
from sim.sweep.results import SweepResults

_DRAWN_BY: Mapping[str, Callable[[SweepResults, Any], Drawn]] = {
    "curve": draw_curve,
    "bars": draw_bars,
    "trade-off": draw_trade_off,
    "heat": draw_heat,
    "cdf": draw_cdf,
    "load": draw_load,
    "scatter": draw_scatter,
}


def draw_plot(data: SweepResults, plot: Plot) -> Drawn:
    """Draw a plot in which `check_report` found no problem."""
    return _DRAWN_BY[plot.kind](data, plot)
