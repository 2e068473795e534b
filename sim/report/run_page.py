"""The page of a run: its figures, and its summary as tables."""

from collections.abc import Sequence

from sim.metrics.slo import slo_limits
from sim.report.page import Page, PageFigure
from sim.report.pools_text import pool_tables
from sim.report.run_data import RunData
from sim.report.run_tables import group_table, latency_table, slo_table, totals_table
from sim.tables.text import number


def run_page(data: RunData, figures: Sequence[PageFigure]) -> Page:
    """The page of a run, without `wall_seconds`: the same run always gives the same page."""
    section = data.scenario.get("report") or {}
    name = str(data.scenario.get("name", "run"))
    facts = f"{name}: a run of {data.summary.get('submitted', 0):,} requests."
    if window := data.summary.get("window"):
        begin_s, end_s = number(window["begin_s"]), number(window["end_s"])
        facts += f" Figures are about {begin_s} s to {end_s} s of it; the timeline has all of it."
    saturated = (
        "The server cannot keep up with the load: its queue grew for as long as requests arrived."
    )
    tables = [
        latency_table(data.summary),
        *([slo_table(data.summary)] if slo_limits(data.summary) else []),
        *pool_tables(data.summary),
        group_table(data.summary),
        totals_table(data.summary),
    ]
    return Page(
        section.get("title") or name,
        facts,
        saturated if data.summary.get("saturated") else "",
        section.get("text") or "",
        figures,
        tables,
        data.scenario,
    )
