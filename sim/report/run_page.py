"""The page of a run: its figures, its summary as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.report.metric_names import COLD, HOT, TENANTS, MetricName, group_label
from sim.report.numbers import number
from sim.report.page import MAX_ROWS, Page, PageFigure, PageTable
from sim.report.run_data import RunData

_LATENCIES = ("ttft", "tpot", "itl", "e2e_latency", "queue_time")
_STATISTICS = ("mean", "median", "p90", "p95", "p99")
_TOTALS = (
    "submitted", "completed", "rejected", "aborted", "unfinished", "duration", "request_rate",
    "request_throughput", "request_goodput", "slo_attainment", "output_throughput",
    "total_throughput", "concurrency", "cache_hit_rate_pct", "max_wait_ms", "retractions",
    "preemptions", "aged", "jain_ttft", "jain_throughput", "slowest_5pct_ttft_share_pct",
)  # fmt: skip
_OF_GROUPS = ("completed", "request_throughput", "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms",
              "cache_hit_rate_pct", "max_wait_ms")  # fmt: skip
_UNDEFINED = "-"
# Units of whole numbers.
_COUNTED = ("", "requests", "tokens")


def run_page(data: RunData, figures: Sequence[PageFigure]) -> Page:
    """Put it together. How long the simulation took is left out: no two runs share it."""
    section = data.scenario.get("report") or {}
    name = str(data.scenario.get("name", "run"))
    facts = f"{name}: a run of {data.summary.get('submitted', 0):,} requests."
    saturated = "The load exceeds what the server can carry: its queue grew to the end."
    tables = [_latency_table(data.summary), _group_table(data.summary), _totals(data.summary)]
    return Page(
        section.get("title") or name,
        facts,
        saturated if data.summary.get("saturated") else "",
        section.get("text") or "",
        figures,
        tables,
        data.scenario,
    )


def _latency_table(summary: Mapping[str, Any]) -> PageTable:
    rows = [
        [MetricName.of(f"{latency}_ms").label,
         *(_value(summary, f"{statistic}_{latency}_ms") for statistic in _STATISTICS)]
        for latency in _LATENCIES
    ]  # fmt: skip
    return PageTable("Latencies (ms)", ["latency", *_STATISTICS], rows)


def _group_table(summary: Mapping[str, Any]) -> PageTable:
    tenants = [f"{TENANTS}.{name}" for name in sorted(summary.get(TENANTS, {}))]
    rows = [
        [group_label(group), *(_value(summary, f"{group}.{name}") for name in _OF_GROUPS)]
        for group in (HOT, COLD, *tenants)[:MAX_ROWS]
    ]
    header = ["requests", *(_with_unit(MetricName.of(name)) for name in _OF_GROUPS)]
    return PageTable("Parts of the requests", header, rows)


def _totals(summary: Mapping[str, Any]) -> PageTable:
    rows = [[_with_unit(MetricName.of(name)), _value(summary, name)] for name in _TOTALS]
    return PageTable(
        "Totals and rates", ["metric", "value"], [row for row in rows if row[1] != _UNDEFINED]
    )


def _with_unit(metric: MetricName) -> str:
    return f"{metric.label} ({metric.unit})" if metric.unit else metric.label


def _value(summary: Mapping[str, Any], name: str) -> str:
    metric = MetricName.of(name)
    value = metric.value(summary)
    if value is None:
        return _UNDEFINED
    return f"{value:,.0f}" if metric.unit in _COUNTED else number(value)
