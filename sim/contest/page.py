"""The page of a contest: one HTML document with its pictures, all contestants, and each card."""

from collections.abc import Iterator
from dataclasses import replace

from sim.contest.again import run_command
from sim.contest.pictures import draw_contest
from sim.contest.results import ContestCell, ContestResults
from sim.contest.tables import (
    INTERVALS_IN_WORDS,
    card_table,
    failure_lines,
    overview_lines,
    overview_table,
    traffic_card,
    traffic_table,
    values_table,
    where_lines,
)
from sim.report.confidence_text import confidence_lines
from sim.report.page import Page, page_figures
from sim.tables.table import Table, columns_of


def contest_page(results: ContestResults) -> Page:
    """The page, with its pictures."""
    facts, slo, *_ = overview_lines(results)
    lost = ", ".join(results.failures)
    return Page(
        results.contest.base.scenario.name,
        f"{facts}. {slo}.",
        confidence_lines(results.confidence),
        f"Out of the contest: {lost}; its card says why." if lost else "",
        "",
        page_figures(list(draw_contest(results).values())),
        list(_tables(results)),
        results.contest.base.raw,
    )


def _tables(results: ContestResults) -> Iterator[Table]:
    first = results.usual_load
    for load in (first, *(load for load in results.loads if load != first)):
        yield overview_table(results, load)
    yield traffic_table(results)
    if results.failures:
        columns = columns_of(["contestant", "reason"])
        yield Table(columns, list(failure_lines(results)), "Out of the contest")
    for name in results.challengers:
        note = " ".join((*where_lines(results, name), INTERVALS_IN_WORDS))
        yield replace(card_table(results, name), note=note)
        yield traffic_card(results, name)
    for traffic in results.traffic:
        for load in results.loads:
            table = values_table(results, traffic, load)
            cells = (ContestCell(name, traffic.name, load) for name in results.contestants)
            rows = [
                [*row, run_command(results, cell)]
                for row, cell in zip(table.rows, cells, strict=True)
            ]
            columns = [*table.columns, *columns_of(["the command that runs it again"])]
            yield replace(table, columns=columns, rows=rows)
