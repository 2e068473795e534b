"""Plots of a sweep for who has its results at hand, in a notebook say."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pydantic import ValidationError

from sim.core.errors import InputError
from sim.report.automatic import automatic_plots
from sim.report.figures.draw import draw_plot
from sim.report.plot_check import check_report, tenants_of
from sim.report.sweep_data import SweepData
from sim.scenario.report_section import ReportSection
from sim.scenario.wording import dotted


def draw(data: SweepData, **plot: Any) -> Figure:
    """A plot of a sweep; its keys are those of a plot in a scenario's `report` section.

    Raises:
        InputError: no such plot, key or metric.
    """
    (checked,) = _section({"plots": [plot]}, data).plots or ()
    return draw_plot(data, checked).figure


def draw_report(data: SweepData) -> list[Figure]:
    """All plots that the scenario's `report` section asks for; without one, those that fit."""
    section = _section(data.scenario.get("report") or {}, data)
    return [draw_plot(data, plot).figure for plot in section.plots or automatic_plots(data)]


def _section(content: Mapping[str, Any], data: SweepData) -> ReportSection:
    try:
        section = ReportSection.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"{dotted(first['loc'])}: {first['msg']}") from None
    if problem := check_report(section, data.design, tenants_of(data.scenario)):
        raise InputError(f"{dotted(problem.path)}: {problem.reason}")
    return section
