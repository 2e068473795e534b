"""The page of a sweep: its figures, its settings as a table, and the points that failed."""

from collections.abc import Sequence

from sim.report.page import Page, PageFigure
from sim.report.sweep_tables import failures_table, settings_table
from sim.scenario.report_section import ReportSection
from sim.sweep.results import SweepResults


def sweep_page(data: SweepResults, section: ReportSection, figures: Sequence[PageFigure]) -> Page:
    num_settings, num_points = len(data.design.settings), len(data.points)
    facts = (
        f"{data.name}: a sweep of {num_points:,} point{'' if num_points == 1 else 's'},"
        f" {num_settings:,} setting{'' if num_settings == 1 else 's'}"
    )
    if data.num_seeds > 1:
        facts += f" with {data.num_seeds} seeds each"
    failed = data.num_failed
    warning = f"{failed:,} points failed and are not in the figures." if failed else ""
    tables = [settings_table(data), *([failures_table(data)] if failed else [])]
    return Page(
        section.title or data.name, f"{facts}.", warning, section.text or "", figures, tables,
        data.scenario,
    )  # fmt: skip
