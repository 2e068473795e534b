"""The tables of a sweep: one row for each setting, or one for each point that failed."""

import json
from collections.abc import Mapping
from typing import Any

from sim.metrics.metric_name import MetricName
from sim.metrics.registry import metric
from sim.report.key_text import key_name, short_names, value_text
from sim.report.metric_columns import interval_columns
from sim.report.same_rows import same_rows
from sim.sweep.design import Settings
from sim.sweep.results import SweepResults
from sim.tables.table import Column, Table, columns_of
from sim.tables.text import number

# The most rows of a table on a page; results.csv has all.
MAX_ROWS = 200
_HEADINGS = {"cache_hit_rate_pct": "hit rate %"}
# Columns of the table of FAIRNESS_T; its tenants are called `hot` and `cold`.
_FAIRNESS_COLUMNS = (
    ("hit\nrate %", "cache_hit_rate_pct"),
    ("TTFT ms\nmean", "mean_ttft_ms"),
    ("\np50", "median_ttft_ms"),
    ("\np99", "p99_ttft_ms"),
    ("hot ms\nmean", "tenants.hot.mean_ttft_ms"),
    ("\nmax", "tenants.hot.max_ttft_ms"),
    ("cold ms\nmean", "tenants.cold.mean_ttft_ms"),
    ("\np99", "tenants.cold.p99_ttft_ms"),
    ("\nmax", "tenants.cold.max_ttft_ms"),
    ("\naged", "aged"),
)


def sweep_table(results: SweepResults, *, max_rows: int | None = None) -> Table:
    """Swept values, how many runs, and means with the half-width of their 95 % intervals.

    Key paths are shortened as far as they stay different. With `max_rows`, a note says how many
    settings are left out.
    """
    keys = results.design.keys
    rows = []
    for setting in results.design.settings[:max_rows]:
        num_points, num_done = len(results.points_of(setting)), len(results.summaries(setting))
        runs = str(num_done) if num_done == num_points else f"{num_done}/{num_points}"
        rows.append([*(json_text(setting[key]) for key in keys), runs, *_means(results, setting)])
    names = short_names(keys)
    more = len(results.design.settings) - len(rows)
    columns = [*columns_of((names[key] for key in keys), ["runs"]), *_mean_columns(results)]
    return Table(columns, rows, note=f"and {more:,} more settings" if more else "")


def setting_rows(results: SweepResults) -> list[dict[str, Any]]:
    """One mapping for each setting: swept values, `runs`, and the metrics' means.

    If there are confidence intervals, `METRIC_half_width` has half of each; undefined values are
    None.
    """
    rows = []
    for setting in results.design.settings:
        row = {key: setting[key] for key in results.design.keys}
        row["runs"] = len(results.summaries(setting))
        for name in results.setting_metrics:
            interval = results.interval(setting, MetricName.of(name))
            row[name] = interval.mean
            if results.has_intervals:
                row[f"{name}_half_width"] = interval.half_width
        rows.append(row)
    return rows


def settings_table(results: SweepResults) -> Table:
    """The same table for a page: at most `MAX_ROWS` rows, with values as the figures write them."""
    keys, settings = results.design.keys, results.design.settings
    rows = [
        [*(value_text(key, setting[key]) for key in keys), len(results.summaries(setting)),
         *_means(results, setting)]
        for setting in settings[:MAX_ROWS]
    ]  # fmt: skip
    columns = [
        *columns_of((key_name(key, keys) for key in keys), ["runs"]),
        *_mean_columns(results),
    ]
    notes = ["Means over seeds, ± half of the 95 % confidence interval."
             if results.has_intervals else "", _left_out("settings", len(settings)),
             *same_rows(results)]  # fmt: skip
    return Table(columns, rows, "Settings", " ".join(filter(None, notes)))


def failures_table(results: SweepResults) -> Table:
    """The points that failed and why, for a page."""
    keys = results.keys
    rows = [
        [str(place), *(value_text(key, point.values[key]) for key in keys), point.status,
         point.message or ""]
        for place, point in enumerate(results.points, start=1)
        if point.summary is None
    ]  # fmt: skip
    headers = ["point", *(key_name(key, keys) for key in keys), "status", "reason"]
    note = _left_out("points", len(rows))
    return Table(columns_of(headers), rows[:MAX_ROWS], "Failed points", note)


def fairness_table(results: SweepResults, key: str) -> Table:
    """For each FAIRNESS_T its hit rate, and the TTFT of hot and of cold requests; means of seeds.

    Args:
        results: of a sweep whose tenants are `hot` and `cold`.
        key: the swept key path of T; one row for each value, in the sweep's order.
    """
    metrics = [MetricName.of(name) for _, name in _FAIRNESS_COLUMNS]
    rows = [
        [value_text(key, setting[key]), *(results.interval(setting, m).mean for m in metrics)]
        for setting in results.design.settings
    ]
    headers = (header for header, _ in _FAIRNESS_COLUMNS)
    return Table([Column("\nT ms"), *columns_of(numbers=headers, to_text=_whole_or_number)], rows)


def json_text(value: Any) -> str:
    """A value as JSON, but a string without quotes, and a whole scheduler as its family's name."""
    if isinstance(value, Mapping) and "family" in value:
        value = str(value["family"])
    return value if isinstance(value, str) else json.dumps(value)


def _mean_columns(results: SweepResults) -> list[Column]:
    return interval_columns(results.table_metrics, _HEADINGS)


def _means(results: SweepResults, setting: Settings) -> list[Any]:
    return [
        results.interval(setting, MetricName.of(name)).scaled(metric(name).table_factor)
        for name in results.table_metrics
    ]


def _left_out(what: str, num_rows: int) -> str:
    more = num_rows - MAX_ROWS
    return f"{more:,} more {what} are in results.csv." if more > 0 else ""


def _whole_or_number(value: float | None) -> str:
    """A whole mean, such as that of a count, without decimals; any other with its decimals."""
    return f"{value:,.0f}" if value is not None and value.is_integer() else number(value)
