"""The tables of a sweep, and which of its settings have the same results and why."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sim.metrics.points import MeanInterval
from sim.metrics.registry import MetricName, metric
from sim.metrics.summary import Summary
from sim.report.confidence_text import basis_lines, intervals_table
from sim.report.figures.key_text import key_name, last_part, short_names, value_text
from sim.report.summary_text import MAX_ROWS
from sim.sweep.results import Settings, SweepResults, same
from sim.tables.table import UNDEFINED, Column, Table, columns_of, number

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
        rows.append([*(value_json(setting[key]) for key in keys), runs, *_means(results, setting)])
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


def sweep_basis(results: SweepResults) -> list[str]:
    """What the step times of a sweep rest on; a line for each kind."""
    return basis_lines([results.confidence(setting) for setting in results.design.settings])


def sweep_intervals(results: SweepResults, *, max_rows: int | None = None) -> Table | None:
    """Between what the means of a real server would be with each setting; None: nowhere known."""
    names = short_names(results.design.keys)
    rows = [
        ([value_json(setting[key]) for key in results.design.keys], results.confidence(setting))
        for setting in results.design.settings[:max_rows]
    ]
    return intervals_table([names[key] for key in results.design.keys], rows)


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

    The sweep's tenants are `hot` and `cold`; `key` is the swept key path of T, with a row for each
    value.
    """
    metrics = [MetricName.of(name) for _, name in _FAIRNESS_COLUMNS]
    rows = [
        [value_text(key, setting[key]), *(results.interval(setting, m).mean for m in metrics)]
        for setting in results.design.settings
    ]
    headers = (header for header, _ in _FAIRNESS_COLUMNS)
    return Table([Column("\nT ms"), *columns_of(numbers=headers, to_text=_whole_or_number)], rows)


def value_json(value: Any) -> str:
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


def interval_columns(
    names: Iterable[str], headings: Mapping[str, str] | None = None
) -> list[Column]:
    """A column of intervals for each metric; `headings` replaces the registry's, by metric."""
    own = headings or {}
    return [
        Column(own.get(name, metric(name).table_heading_with_unit), to_text=interval_text)
        for name in names
    ]


def interval_text(interval: MeanInterval) -> str:
    """`12.3 ± 0.4`, or only the mean if there is no interval."""
    if interval.mean is None:
        return UNDEFINED
    if interval.half_width is None:
        return number(interval.mean)
    return f"{number(interval.mean)} ± {number(interval.half_width)}"


def share_text(interval: MeanInterval) -> str:
    """A share in percent, with its interval: `98.4 (94.9 to 100)`."""
    if interval.mean is None or interval.half_width is None:
        return interval_text(interval.scaled(100))
    low, high = (number(min(max(100 * end, 0), 100)) for end in interval.ends)
    return f"{number(100 * interval.mean)} ({low} to {high})"


_MAX_LINES = 5
_ORDER = {"schedule_policy", "scheduling_policy", "policy", "fairness", "t_ms", "kind", "lookahead"}
_ROW_LIMITS = {"max_running_requests", "max_num_seqs"}
_PREFIX_POLICIES = {"fcfs", "lpm", "dfs-weight"}


def same_rows(results: SweepResults) -> list[str]:
    """A sentence for each reason: "Rows 1 and 3 are the same: nobody waited, so ...".

    Rows are those of the sweep's table, numbered from 1. Groups of rows that differ in the same
    keys, for the same reason, share a sentence.
    """
    groups: dict[tuple[tuple[str, ...], str], list[list[int]]] = {}
    # A router chooses among the servers of each pool.
    default = 0 if results.scenario.get("pools") else 1
    servers = {"replicas": results.scenario.get("replicas", default)}
    for rows in _groups(results):
        settings = [servers | dict(results.design.settings[row]) for row in rows]
        keys = tuple(
            key for key in results.design.keys
            if len({same(setting[key]) for setting in settings}) > 1
        )  # fmt: skip
        runs = [run for setting in settings for run in results.summaries(setting)]
        groups.setdefault((keys, _why(keys, settings, runs)), []).append(rows)
    lines = [_sentence(rows, why) for (_, why), rows in groups.items()]
    more = len(lines) - _MAX_LINES
    return lines[:_MAX_LINES] + ([f"{more} more groups of rows are the same."] if more > 0 else [])


def _groups(results: SweepResults) -> list[list[int]]:
    """Rows, from 0, with equal metrics; each group has two or more."""
    found: dict[str, list[int]] = {}
    for row, setting in enumerate(results.design.settings):
        if runs := results.summaries(setting):
            shown = same([[run.get(name) for name in results.setting_metrics] for run in runs])
            found.setdefault(shown, []).append(row)
    return [rows for rows in found.values() if len(rows) > 1]


def _why(keys: Sequence[str], settings: Sequence[Settings], runs: Sequence[Summary]) -> str:
    reasons = {key: _why_key(key, settings, runs) for key in keys}
    known = list(dict.fromkeys(filter(None, reasons.values())))
    if names := [last_part(key) for key, reason in reasons.items() if reason is None]:
        known.append(f"{' and '.join(names)} made no difference to these figures")
    return "; ".join(known)


def _why_key(key: str, settings: Sequence[Settings], runs: Sequence[Summary]) -> str | None:
    name, values = last_part(key), [setting[key] for setting in settings]
    if key.startswith("router"):
        one = all(setting["replicas"] == 1 for setting in settings)
        return "there is one server, so routers cannot differ" if one else None
    if key.startswith("scheduler.") and name in _ORDER:
        if _most(runs, "max_queue_length") == 0:
            return "nobody waited, so policies cannot differ"
        if set(map(str, values)) <= _PREFIX_POLICIES and _most(runs, "cache_hit_rate_pct") == 0:
            return "no prompt begins like another, so all of these policies serve by arrival"
    if name in _ROW_LIMITS:
        most = _most(runs, "max_decode_rows")
        limits = [value for value in values if isinstance(value, int)]
        if most is not None and limits and most < min(limits):
            return f"at most {most:.0f} requests ran at once, fewer than every {name}"
    return None


def _most(runs: Sequence[Summary], metric: str) -> float | None:
    """The largest value of a metric; None if a run does not have it."""
    values = [run[metric] for run in runs if run.get(metric) is not None]
    return max(values) if len(values) == len(runs) else None


def _sentence(groups: Sequence[Sequence[int]], why: str) -> str:
    texts = [_listed([str(row + 1) for row in rows]) for rows in groups]
    if len(texts) == 1:
        return f"Rows {texts[0]} are the same: {why}."
    return f"Rows {'; '.join(texts)} are each the same: {why}."


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
