"""A run's server pools as tables, and the parts of its TTFT."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sim.engine.partner import BOTH
from sim.metrics.registry import PHASES, metric
from sim.tables.table import Column, Table
from sim.tables.text import number

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
