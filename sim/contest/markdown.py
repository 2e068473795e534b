"""The results of a contest as Markdown, for a pull request: all contestants, then each card."""

from collections.abc import Iterator
from html import escape

from sim import __version__
from sim.contest.results import ContestResults
from sim.contest.tables import (
    INTERVALS_IN_WORDS,
    card_table,
    overview_lines,
    overview_table,
    traffic_card,
    traffic_table,
    values_table,
    where_lines,
)
from sim.scenario.strict_yaml import yaml_text
from sim.tables.table import Table


def contest_markdown(results: ContestResults) -> str:
    """The whole text; equal results give equal text."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: ContestResults) -> Iterator[str]:
    head, *remarks = overview_lines(results)
    name, _, what = head.partition(": ")
    yield from (f"# {_escaped(name)}", "", f"{_escaped(what)}.", "")
    yield from (f"{_escaped(line)}\n" for line in remarks)
    first = overview_table(results, results.usual_load)
    yield from (f"{_escaped(first.title)}:", "", *table_lines(first, note=True))
    for load in results.loads:
        if load != results.usual_load:
            table = overview_table(results, load)
            yield from _folded(table.title, table_lines(table))
    yield from _folded("The traffic", table_lines(traffic_table(results), note=True))
    yield from _folded("The scenario", _scenario_lines(results))
    yield from ("## Cards", "", f"Mean differences over all traffic. {INTERVALS_IN_WORDS}", "")
    for name in results.challengers:
        yield from _folded(name, _card(results, name))
    yield from ("## Values", "", "Means over the seeds. contest.csv has the other loads.", "")
    for traffic in results.traffic:
        table = values_table(results, traffic, results.usual_load)
        yield from _folded(table.title, table_lines(table))
    yield f"Made by servetwin {__version__}. contest.csv has every row, and how to run it again."


def _scenario_lines(results: ContestResults) -> Iterator[str]:
    """The file of the contest: what each contestant sets, the server, the SLO."""
    yield from (f"<pre>{escape(yaml_text(results.contest.base.raw))}</pre>", "")


def _card(results: ContestResults, name: str) -> Iterator[str]:
    yield from table_lines(card_table(results, name))
    yield from table_lines(traffic_card(results, name))
    for line in where_lines(results, name):
        yield from (_escaped(line), "")


def _folded(title: str, lines: Iterator[str]) -> Iterator[str]:
    yield from ("<details>", f"<summary>{_escaped(title)}</summary>", "")
    yield from lines
    yield from ("</details>", "")


def table_lines(table: Table, *, note: bool = False) -> Iterator[str]:
    """A table in GitHub's Markdown, without the columns that have no values."""
    shown = table.without_empty_columns()
    yield _row([column.header for column in shown.columns])
    yield _row(["---" if column.is_text else "---:" for column in shown.columns])
    yield from map(_row, shown.cells())
    yield ""
    if note and table.note:
        yield from (_escaped(table.note), "")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Text in which nothing is Markdown or HTML."""
    for mark, safe in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("*", "\\*"), ("`", "\\`")):
        text = text.replace(mark, safe)
    return text
