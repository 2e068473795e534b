"""The page of a search: its figures, its best settings, and how sure they are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sim.report.page import Page, PageFigure
from sim.report.sweep_tables import MAX_ROWS, json_text
from sim.report.tune_tables import best_table, front_table, method_in_words, verdicts
from sim.sweep.tune_results import TuneResults
from sim.tables.table import Table, columns_of


def tune_page(
    results: TuneResults, scenario: Mapping[str, Any], figures: Sequence[PageFigure]
) -> Page:
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
        figures,
        tables,
        scenario,
    )


def _without_results(results: TuneResults) -> Table:
    rows = [
        [str(trial.trial), *(json_text(trial.settings[key]) for key in results.keys), trial.status,
         trial.error or ""]
        for trial in results.trials
        if trial.sought is None
    ]  # fmt: skip
    columns = columns_of(["trial", *results.keys, "status", "reason"])
    return Table(columns, rows[:MAX_ROWS], "Trials without results")
