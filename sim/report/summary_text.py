"""Summaries as tables and as text: of one run, as its client prints it, and of several runs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sim.engine.server_config import BOTH
from sim.metrics.latencies import slo_limits
from sim.metrics.registry import (
    COLD,
    HOT,
    LATENCIES,
    PHASES,
    RUN_METRICS,
    TENANTS,
    Metric,
    MetricName,
    group_label,
    metric,
)
from sim.metrics.summary import Summary
from sim.report.client_text import client_lines
from sim.report.confidence_text import confidence_lines, kv_pool_lines
from sim.tables.table import (
    UNDEFINED,
    Coloured,
    Column,
    Table,
    aligned,
    columns_of,
    number,
    printable,
    yes_or_no,
)

# The most rows of a table on a page; results.csv has all.
MAX_ROWS = 200
_TOTALS = (
    "submitted", "completed", "rejected", "aborted", "unfinished", "duration", "request_rate",
    "request_throughput", "request_goodput", "slo_attainment", "output_throughput",
    "total_throughput", "concurrency", "cache_hit_rate_pct", "max_wait_ms", "retractions",
    "preemptions", "aged", "gpu_hours", "mean_replicas", "replica_starts", "time_below_slo_s",
    "mean_power_w", "energy_kwh", "joules_per_output_token", "joules_per_token",
    "jain_ttft", "jain_throughput", "slowest_5pct_ttft_share_pct",
)  # fmt: skip
_OF_GROUPS = ("completed", "request_throughput", "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms",
              "cache_hit_rate_pct", "max_wait_ms")  # fmt: skip


def scalar_metrics(summary: Mapping[str, Any]) -> dict[str, float | bool | None]:
    """The metrics of the whole run that are one value each, by name."""
    return {name: summary.get(name) for name in RUN_METRICS}


def slo_table(summary: Mapping[str, Any]) -> Table:
    """The percentile of each latency that has a limit, and whether it is met."""
    rows = []
    for name, limit in slo_limits(summary).items():
        value = MetricName.of(name).value(summary)
        verdict = "met" if value is not None and value <= limit else "missed"
        rows.append([metric(name).label, number(value), number(limit), verdict])
    share = summary.get("slo_attainment")
    note = f"{number(None if share is None else 100 * share)} % of requests are within every limit."
    columns = columns_of(["SLO"], ["measured (ms)", "limit (ms)", "verdict"])
    return Table(columns, rows, "Service level objectives", note)


def latency_table(summary: Mapping[str, Any]) -> Table:
    rows = [
        [latency.label, *(_cell_text(summary, f"{name}_{latency.name}_ms") for name in STATISTICS)]
        for latency in LATENCIES.values()
    ]
    return Table(columns_of(["latency"], STATISTICS), rows, "Latencies (ms)")


def group_table(summary: Mapping[str, Any]) -> Table:
    tenants = [f"{TENANTS}.{name}" for name in sorted(summary.get(TENANTS, {}))]
    rows = [
        [group_label(group), *(_cell_text(summary, f"{group}.{name}") for name in _OF_GROUPS)]
        for group in (HOT, COLD, *tenants)[:MAX_ROWS]
    ]
    columns = columns_of(["requests"], (metric(name).label_with_unit for name in _OF_GROUPS))
    return Table(columns, rows, "Parts of the requests")


def totals_table(summary: Mapping[str, Any]) -> Table:
    rows = [[metric(name).label_with_unit, _cell_text(summary, name)] for name in _TOTALS]
    defined = [row for row in rows if row[1] != UNDEFINED]
    return Table(columns_of(["metric"], ["value"]), defined, "Totals and rates")


def _cell_text(summary: Mapping[str, Any], name: str) -> str:
    named = MetricName.of(name)
    value = named.value(summary)
    return f"{value:,.0f}" if value is not None and named.metric.is_count else number(value)


STATISTICS = ("mean", "median", "p90", "p95", "p99")
_OF_POOLS = (
    "busy_pct", "mean_kv_used_pct", "mean_running", "mean_queue_length", "prefill_throughput",
    "decode_throughput", "simulated_steps",
)  # fmt: skip
_POOL_HEADINGS = {"mean_kv_used_pct": "KV used %"}


def pools_table(summary: Mapping[str, Any]) -> Table:
    """One row for each server pool."""
    rows = [
        [name, pool["role"], _servers(pool), *(pool.get(key) for key in _OF_POOLS)]
        for name, pool in summary["pools"].items()
    ]
    headings = (_POOL_HEADINGS.get(key, metric(key).table_heading_with_unit) for key in _OF_POOLS)
    columns = [
        Column("pool", is_text=True),
        Column("role", is_text=True),
        Column("servers"),
        *(Column(heading, to_text=number) for heading in headings),
    ]
    if all(pool["role"] == BOTH for pool in summary["pools"].values()):
        columns.pop(1)
        rows = [[row[0], *row[2:]] for row in rows]
    return Table(columns, rows)


def _servers(pool: Mapping[str, Any]) -> str:
    ranks = pool["ranks"]
    return f"{pool['replicas']:,}" if ranks == 1 else f"{pool['replicas']:,} x {ranks} ranks"


def phases_table(summary: Mapping[str, Any]) -> Table | None:
    """One row for each part of TTFT; None: no server hands requests over."""
    rows = [
        [phase.label, *(summary.get(f"{name}_{phase.name}_ms") for name in STATISTICS)]
        for phase in PHASES.values()
    ]
    if not any(row[1] is not None for row in rows):
        return None
    columns = (Column(name, to_text=number, min_width=8) for name in STATISTICS)
    return Table([Column("of TTFT, ms", is_text=True), *columns], rows)


def sent_text(summary: Mapping[str, Any]) -> str | None:
    """A line about what was sent; None: no server hands requests over."""
    if summary.get("transfers") is None:
        return None
    parts = [f"{summary['transfers']:,} transfers"]
    if summary["mean_transfer_queue_ms"]:
        parts.append(f"{number(summary['mean_transfer_queue_ms'])} ms of each in a queue")
    parts += [
        f"{summary[name]:,} {words}"
        for name, words in (("retried_transfers", "tried again"), ("failed_transfers", "failed"))
        if summary[name]
    ]
    rate = f"{number(summary['kv_sent_gb'])} GB, {number(summary['kv_sent_gb_s'])} GB/s"
    return f"KV sent: {rate} ({', '.join(parts)})"


def pool_tables(summary: Mapping[str, Any]) -> list[Table]:
    """The tables of pages and notebooks: the server pools, and the parts of TTFT, if any."""
    if not summary.get("pools"):
        return []
    pools, parts = pools_table(summary), phases_table(summary)
    sent = sent_text(summary)
    tables = [replace(pools, title="Server pools", note=f"{sent}." if sent else "")]
    if parts is not None:
        tables.append(replace(parts, title="Parts of TTFT (ms)"))
    return tables


_RATES = (
    "request_throughput", "input_throughput", "output_throughput", "total_throughput",
    "concurrency", "cache_hit_rate_pct", "duration", "max_wait_ms", "simulated_steps",
)  # fmt: skip
_COUNTS = (
    "submitted", "completed", "rejected", "aborted", "unfinished", "retractions", "preemptions",
    "aged", "saturated",
)  # fmt: skip
# Columns of the tenants' table; two headings are shorter than the registry's.
_GROUP_COLUMNS = (
    "completed", "request_throughput", "mean_ttft_ms", "p99_ttft_ms", "max_wait_ms",
    "cache_hit_rate_pct", "aged",
)  # fmt: skip
_GROUP_HEADINGS = {"p99_ttft_ms": "p99 ms", "cache_hit_rate_pct": "cache hit %"}


def summary_text(summary: Summary, *, bold: bool = False) -> str:
    """The summary as lines of any width; `bold` prints headings with a terminal's escape codes."""
    lines = short_summary(summary, bold=bold)
    if "pools" in summary:
        lines += _pools(summary, bold=bold)
    if len(summary["tenants"]) > 1:
        lines += ["", *_groups(summary).lines(bold=bold), _evenness(summary)]
    if summary["rejected_rids"]:
        rest = summary["rejected"] - len(summary["rejected_rids"])
        more = f" and {rest} more" if rest else ""
        lines.append(printable(f"rejected: {', '.join(summary['rejected_rids'])}{more}"))
    if "window" in summary:
        lines.append(_measured(summary))
    lines += [*kv_pool_lines(summary), *confidence_lines(summary.get("confidence", {}))]
    lines += [printable(f"traffic: {note}") for note in summary.get("traffic_notes", ())]
    if "client_figures" in summary:
        lines += ["", *client_lines(summary["client_figures"])]
    return "".join(f"{line}\n" for line in lines)


def _pools(summary: Summary, *, bold: bool) -> list[str]:
    """What the servers of each pool did, and where TTFT went."""
    lines = ["", *pools_table(summary).lines(bold=bold)]
    phases, sent = phases_table(summary), sent_text(summary)
    if phases is not None:
        lines += ["", *phases.lines(bold=bold)]
    return lines if sent is None else [*lines, sent]


def short_summary(summary: Summary, *, bold: bool = False) -> list[str]:
    """The lines that every run has: latencies, totals and rates, and those of an SLO."""
    lines = [*_totals(summary)]
    if any(summary[f"mean_{name}_ms"] is not None for name in LATENCIES):
        lines = [*_latencies(summary).lines(bold=bold), "", *lines]
    if limits := slo_limits(summary):
        lines += ["", *(_held(summary, name, limit) for name, limit in limits.items())]
    return lines


def _latencies(summary: Summary) -> Table:
    rows = [
        [latency.heading, *(summary[f"{name}_{latency.name}_ms"] for name in STATISTICS)]
        for latency in LATENCIES.values()
    ]
    columns = (Column(name, to_text=number, min_width=8) for name in STATISTICS)
    return Table([Column("ms", is_text=True), *columns], rows)


def _totals(summary: Summary) -> list[str]:
    rates, counts = list(_RATES), list(_COUNTS)
    if summary["goodput_slos_ms"]:
        rates.append("request_goodput")
        counts.append("slo_attainment")
    if "mean_acceptance_length" in summary:
        rates.append("mean_acceptance_length")
        counts.append("accepted_tokens")
    if "host_hit_rate_pct" in summary:
        rates.append("host_hit_rate_pct")
        counts.append("total_loaded_tokens")
    if "predicted_hit_rate_pct" in summary:
        rates.append("predicted_hit_rate_pct")
        counts.append("false_hit_rate_pct")
    if "gpu_hours" in summary:
        rates += ["gpu_hours", "mean_replicas"]
        counts += ["replica_starts", "time_below_slo_s"]
    if "mean_power_w" in summary:
        rates += ["mean_power_w", "joules_per_output_token"]
        counts += ["energy_kwh", "joules_per_token"]
    rows = [
        (metric(rate).table_heading_with_unit, _shown_total(summary, rate),
         f"  {metric(count).table_heading_with_unit}", _shown_total(summary, count))
        for rate, count in zip(rates, counts, strict=True)
    ]  # fmt: skip
    return aligned(rows, gap=2, right={1, 3})


def _shown_total(summary: Summary, name: str) -> str:
    value = summary[name]
    if name == "saturated":
        return yes_or_no(value)
    # Without any request the attainment is undefined; it is shown as 0 %.
    return number(100 * (value or 0.0) if name == "slo_attainment" else value)


def _held(summary: Summary, name: str, limit_ms: float) -> str:
    """Whether the percentile that the SLO is about is within its limit."""
    value = summary[name]
    verdict = "met" if value is not None and value <= limit_ms else "missed"
    return (
        f"SLO: {metric(name).table_heading} {number(value)} ms of {number(limit_ms)} ms: {verdict}"
    )


def _measured(summary: Summary) -> str:
    begin_s, end_s = summary["window"]["begin_s"], summary["window"]["end_s"]
    return (
        f"measured from {number(begin_s)} s to {number(end_s)} s:"
        f" {number(summary['request_rate'])} requests/s offered,"
        f" {number(summary['request_throughput'])} served"
    )


def _groups(summary: Summary) -> Table:
    """One row for each tenant, then hot and cold requests."""
    groups = {**summary["tenants"], "(hot)": summary["hot"], "(cold)": summary["cold"]}
    headings = (
        _GROUP_HEADINGS.get(name, metric(name).table_heading_with_unit) for name in _GROUP_COLUMNS
    )
    columns = [Column("tenant", is_text=True), *(Column(name, to_text=number) for name in headings)]
    return Table(columns, [[name, *(group[key] for key in _GROUP_COLUMNS)]
                           for name, group in groups.items()])  # fmt: skip


def _evenness(summary: Summary) -> str:
    return (
        f"Jain's index of TTFT {number(summary['jain_ttft'])}, of throughput by demand"
        f" {number(summary['jain_throughput'])}; the slowest 5 % carry"
        f" {number(summary['slowest_5pct_ttft_share_pct'])} % of all TTFT"
    )


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
