"""One run's summary as tables for pages and notebooks, and as single numbers."""

from collections.abc import Mapping
from typing import Any

from sim.metrics.metric_name import COLD, HOT, TENANTS, MetricName, group_label
from sim.metrics.registry import LATENCIES, RUN_METRICS, metric
from sim.metrics.slo import slo_limits
from sim.report.pools_text import STATISTICS
from sim.report.sweep_tables import MAX_ROWS
from sim.tables.table import Table, columns_of
from sim.tables.text import UNDEFINED, number

_TOTALS = (
    "submitted", "completed", "rejected", "aborted", "unfinished", "duration", "request_rate",
    "request_throughput", "request_goodput", "slo_attainment", "output_throughput",
    "total_throughput", "concurrency", "cache_hit_rate_pct", "max_wait_ms", "retractions",
    "preemptions", "aged", "gpu_hours", "mean_replicas", "replica_starts", "time_below_slo_s",
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
        [latency.label, *(_value(summary, f"{name}_{latency.name}_ms") for name in STATISTICS)]
        for latency in LATENCIES.values()
    ]
    return Table(columns_of(["latency"], STATISTICS), rows, "Latencies (ms)")


def group_table(summary: Mapping[str, Any]) -> Table:
    tenants = [f"{TENANTS}.{name}" for name in sorted(summary.get(TENANTS, {}))]
    rows = [
        [group_label(group), *(_value(summary, f"{group}.{name}") for name in _OF_GROUPS)]
        for group in (HOT, COLD, *tenants)[:MAX_ROWS]
    ]
    columns = columns_of(["requests"], (metric(name).label_with_unit for name in _OF_GROUPS))
    return Table(columns, rows, "Parts of the requests")


def totals_table(summary: Mapping[str, Any]) -> Table:
    rows = [[metric(name).label_with_unit, _value(summary, name)] for name in _TOTALS]
    defined = [row for row in rows if row[1] != UNDEFINED]
    return Table(columns_of(["metric"], ["value"]), defined, "Totals and rates")


def _value(summary: Mapping[str, Any], name: str) -> str:
    named = MetricName.of(name)
    value = named.value(summary)
    return f"{value:,.0f}" if value is not None and named.metric.is_count else number(value)
