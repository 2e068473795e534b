"""The page of a finished run, sweep or search, from the files in its folder."""

from dataclasses import replace
from pathlib import Path

from sim.core.errors import InputError
from sim.metrics.latencies import slo_limits
from sim.report.figures.run import draw_run
from sim.report.figures.tune import draw_tune
from sim.report.page import Page, page_figures
from sim.report.plots import draw_report, report_section
from sim.report.run_data import read_run
from sim.report.run_folder import SUMMARY
from sim.report.run_tables import (
    MAX_ROWS,
    group_table,
    latency_table,
    pool_tables,
    slo_table,
    totals_table,
)
from sim.report.sweep_tables import failures_table, settings_table, value_json
from sim.report.tune_tables import best_table, front_table, method_in_words, verdicts
from sim.sweep.result_files import RESULTS, REWRITE_HINT, read_results
from sim.sweep.tune.files import is_tune_folder, read_tune_results
from sim.sweep.tune.results import TuneResults
from sim.tables.table import Table, columns_of
from sim.tables.text import counted, number


def folder_page(folder: Path) -> Page:
    """The page, with its pictures."""
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder of a run, a sweep or a search")
    if (folder / RESULTS).exists():
        return _tune_page(folder) if is_tune_folder(folder) else _sweep_page(folder)
    if (folder / SUMMARY).exists():
        return _run_page(folder)
    raise InputError(
        f"{folder}: has neither {RESULTS} of a finished sweep nor {SUMMARY} of a finished run"
    )


def _run_page(folder: Path) -> Page:
    """The page of a run, without `wall_seconds`: the same run always gives the same page."""
    data = read_run(folder)
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
        page_figures(draw_run(data)),
        tables,
        data.scenario,
    )


def _sweep_page(folder: Path) -> Page:
    data = read_results(folder)
    try:
        # Check it again: the file may have been edited since the sweep.
        section = report_section(data.scenario.get("report") or {}, data)
    except InputError as error:
        raise InputError(f"{folder / RESULTS}: {error} ({REWRITE_HINT})") from None
    facts = (
        f"{data.name}: a sweep of {counted(len(data.points), 'point')},"
        f" {counted(len(data.design.settings), 'setting')}"
    )
    if data.num_seeds > 1:
        facts += f" with {data.num_seeds} seeds each"
    failed = data.num_failed
    return Page(
        section.title or data.name,
        f"{facts}.",
        f"{failed:,} points failed and are not in the figures." if failed else "",
        section.text or "",
        page_figures(draw_report(data, section)),
        [settings_table(data), *([failures_table(data)] if failed else [])],
        data.scenario,
    )


def _tune_page(folder: Path) -> Page:
    results, scenario = read_tune_results(folder)
    told = verdicts(results)
    tables = [
        replace(best_table(results), title="The best settings"),
        replace(front_table(results), title="Settings that no other beats in all respects"),
        *([_without_results(results)] if len(results.ranked()) < len(results.trials) else []),
    ]
    return Page(
        results.name,
        method_in_words(results),
        "" if results.winner is not None else told[0],
        "\n\n".join(told if results.winner is not None else ()),
        page_figures(draw_tune(results, scenario)),
        tables,
        scenario,
    )


def _without_results(results: TuneResults) -> Table:
    rows = [
        [str(trial.trial), *(value_json(trial.settings[key]) for key in results.keys), trial.status,
         trial.error or ""]
        for trial in results.trials
        if trial.sought is None
    ]  # fmt: skip
    columns = columns_of(["trial", *results.keys, "status", "reason"])
    return Table(columns, rows[:MAX_ROWS], "Trials without results")
