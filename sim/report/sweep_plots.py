"""Plots of a sweep: those in its scenario, or else a choice that fits it; or any single plot."""

from collections.abc import Iterator, Mapping
from typing import Any

from matplotlib.figure import Figure
from pydantic import ValidationError

from sim.core.errors import InputError
from sim.core.messages import dotted
from sim.report.automatic import automatic_plots
from sim.report.figures.draw import draw_plot
from sim.report.figures.drawn import Drawn
from sim.report.plot_check import check_report, pools_of, tenants_of
from sim.scenario.report_section import ReportSection
from sim.sweep.results import SweepResults


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


def draw(data: SweepResults, **plot: Any) -> Figure:
    """One plot; its keys are those of a plot in a scenario's `report` section.

    Raises:
        InputError: there is no such plot, key or metric.
    """
    (drawn,) = draw_report(data, report_section({"plots": [plot]}, data))
    return drawn.figure
