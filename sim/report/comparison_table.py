"""Summaries of several runs side by side."""

from collections.abc import Iterable, Mapping
from typing import Any

from sim.metrics.registry import Metric, metric
from sim.metrics.slo import slo_limits
from sim.metrics.summary import Summary
from sim.tables.table import Coloured, Column, Table
from sim.tables.text import number, yes_or_no

# A smaller difference is shown as 0.0, without a colour.
_NO_CHANGE = 0.05
_COMPARED = (
    "completed", "duration", "request_throughput", "output_throughput", "total_throughput",
    "request_goodput", "cache_hit_rate_pct", "host_hit_rate_pct", "mean_ttft_ms", "median_ttft_ms",
    "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "p99_itl_ms", "mean_e2e_latency_ms",
    "p99_e2e_latency_ms", "max_wait_ms", "retractions", "preemptions", "aged",
)  # fmt: skip
# The registry's heading of this metric is `all`, which is too short here.
_HEADINGS = {"total_throughput": "all tokens"}
_WITHOUT_UNIT = ("aged",)


def comparison_table(summaries: Mapping[str, Summary]) -> Table:
    """Runs side by side, each with its relative difference to the first one.

    The difference of two percentages is in percentage points (pp). A metric that is undefined in
    every run has no row.
    """
    first_name, *other_names = summaries
    columns = [Column(is_text=True), Column(is_text=True), Column(first_name)]
    for name in other_names:
        columns += [Column(name), Column()]
    rows: list[list[Any]] = []
    for known in map(metric, _names(summaries.values())):
        first, *others = [summary.get(known.name) for summary in summaries.values()]
        if first is None and all(value is None for value in others):
            continue
        row: list[Any] = [
            _HEADINGS.get(known.name, known.table_heading),
            _unit(known),
            _shown(first, known),
        ]
        for value in others:
            row += [_shown(value, known), _difference(first, value, known)]
        rows.append(row)
    saturated = [
        cell for summary in summaries.values() for cell in ("", yes_or_no(summary["saturated"]))
    ]
    return Table(columns, [*rows, ["saturated", "", *saturated[1:]]])


def _names(summaries: Iterable[Summary]) -> list[str]:
    """The rows of the table; with an SLO, also what it is about."""
    limits = [name for summary in summaries for name in slo_limits(summary)]
    if not limits:
        return list(_COMPARED)
    place = _COMPARED.index("request_goodput") + 1
    names = (*_COMPARED[:place], "slo_attainment", *limits, *_COMPARED[place:])
    return list(dict.fromkeys(names))


def _unit(known: Metric) -> str:
    if known.name in _WITHOUT_UNIT:
        return ""
    return known.unit if known.table_unit is None else known.table_unit


def _shown(value: float | None, known: Metric) -> str:
    return number(None if value is None else known.table_factor * value)


def _difference(base: float | None, value: float | None, known: Metric) -> str | Coloured:
    if base is None or value is None:
        return ""
    base, value = known.table_factor * base, known.table_factor * value
    if _unit(known) == "%":
        change, unit = value - base, "pp"
    elif base:
        change, unit = 100 * (value - base) / base, "%"
    else:
        return ""
    if abs(change) < _NO_CHANGE:
        return f"0.0 {unit}"
    text = f"{change:+,.1f} {unit}"
    towards_better = (value - base) * known.better
    return Coloured(text, "green" if towards_better > 0 else "red") if towards_better else text
