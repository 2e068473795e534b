"""The page of a sweep: its figures, its settings as a table, what failed."""

from collections.abc import Sequence

from sim.report.metric_names import MetricName
from sim.report.page import MAX_ROWS, Page, PageFigure, PageTable
from sim.report.sweep_data import SweepData
from sim.report.sweep_results import METRICS
from sim.report.sweep_tables import interval_text
from sim.report.words import key_name, value_text
from sim.scenario.report_section import ReportSection


def sweep_page(data: SweepData, section: ReportSection, figures: Sequence[PageFigure]) -> Page:
    """Put it together."""
    num_settings, num_points = len(data.design.settings), len(data.points)
    facts = (
        f"{data.name}: a sweep of {num_points:,} point{'' if num_points == 1 else 's'},"
        f" {num_settings:,} setting{'' if num_settings == 1 else 's'}"
    )
    if data.num_seeds > 1:
        facts += f" with {data.num_seeds} seeds each"
    failed = data.num_failed
    warning = f"{failed:,} points failed and are not in the figures." if failed else ""
    tables = [_settings_table(data), *([_failures_table(data)] if failed else [])]
    return Page(
        section.title or data.name, f"{facts}.", warning, section.text or "", figures, tables,
        data.scenario,
    )  # fmt: skip


def _settings_table(data: SweepData) -> PageTable:
    keys = data.design.keys
    metrics = {label: MetricName.of(name) for label, name in METRICS.items()}
    rows = []
    for setting in data.design.settings[:MAX_ROWS]:
        values = [value_text(key, setting[key]) for key in keys]
        found = [interval_text(data.interval(setting, metric)) for metric in metrics.values()]
        rows.append([*values, str(len(data.summaries(setting))), *found])
    header = [*(key_name(key, keys) for key in keys), "runs", *metrics]
    note = "Means over seeds, ± half of the 95 % confidence interval." if data.has_intervals else ""
    more = len(data.design.settings) - len(rows)
    if more:
        note = f"{note} {more:,} settings more are in results.csv.".strip()
    return PageTable("Settings", header, rows, num_text_columns=len(keys), note=note)


def _failures_table(data: SweepData) -> PageTable:
    keys = data.keys
    failed = [
        (number, point)
        for number, point in enumerate(data.points, start=1)
        if point.summary is None
    ]
    rows = [
        [str(number), *(value_text(key, point.values[key]) for key in keys), point.status,
         point.message or ""]
        for number, point in failed[:MAX_ROWS]
    ]  # fmt: skip
    header = ["point", *(key_name(key, keys) for key in keys), "status", "reason"]
    more = len(failed) - len(rows)
    note = f"{more:,} points more are in results.csv." if more else ""
    return PageTable("Failed points", header, rows, num_text_columns=len(header), note=note)
