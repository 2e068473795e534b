"""One run's summary as tables and single numbers: latencies, totals, groups, server pools."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sim.engine.server_config import BOTH
from sim.metrics.latencies import slo_limits
from sim.metrics.metric_name import COLD, HOT, TENANTS, MetricName, group_label
from sim.metrics.registry import LATENCIES, PHASES, RUN_METRICS, metric
from sim.tables.table import Column, Table, columns_of
from sim.tables.text import UNDEFINED, number

# The most rows of a table on a page; results.csv has all.
MAX_ROWS = 200
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


STATISTICS = ("mean", "median", "p90", "p95", "p99")
_OF_POOLS = (
    "busy_pct", "mean_kv_used_pct", "mean_running", "mean_queue_length", "prefill_throughput",
    "decode_throughput", "simulated_steps",
)  # fmt: skip
_HEADINGS = {"mean_kv_used_pct": "KV used %"}


def pools_table(summary: Mapping[str, Any]) -> Table:
    """One row for each server pool."""
    rows = [
        [name, pool["role"], _servers(pool), *(pool.get(key) for key in _OF_POOLS)]
        for name, pool in summary["pools"].items()
    ]
    headings = (_HEADINGS.get(key, metric(key).table_heading_with_unit) for key in _OF_POOLS)
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
