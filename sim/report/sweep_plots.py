"""Plots of a sweep: those in its scenario, or else a choice that fits it; or any single plot."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from sim.core.errors import InputError
from sim.core.messages import dotted
from sim.report.automatic import automatic_plots
from sim.report.figures.cdf import draw_cdf
from sim.report.figures.drawn import Drawn
from sim.report.figures.heat import draw_heat
from sim.report.figures.load import draw_load
from sim.report.figures.over_key import draw_bars, draw_curve, draw_scatter
from sim.report.figures.trade_off import draw_trade_off
from sim.report.plot_check import check_report, pools_of, tenants_of
from sim.scenario.report_section import Plot, ReportSection
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


def report_section(content: Mapping[str, Any], data: SweepResults) -> ReportSection:
    """What a `report` section says, checked against the sweep that it is about.

    Raises:
        InputError: it is not a valid section, or names a key or metric that the sweep lacks; the
            message begins with the key path.
    """
    try:
        section = ReportSection.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{dotted(('report', *first['loc']))}: {first['msg']}") from None
    tenants = tenants_of(data.scenario) | set(data.tenants)
    if problem := check_report(section, data.design, tenants, pools_of(data.scenario)):
        raise InputError(f"{dotted(problem.path)}: {problem.reason}")
    return section


def draw_report(data: SweepResults, section: ReportSection) -> Iterator[Drawn]:
    """The plots that the section asks for; without any, those that fit the sweep."""
    for plot in section.plots or automatic_plots(data):
        yield draw_plot(data, plot)
