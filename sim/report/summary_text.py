"""One run's summary as text: latencies on top, totals and rates below."""

from sim.metrics.registry import LATENCIES, metric
from sim.metrics.slo import slo_limits
from sim.metrics.summary import Summary
from sim.report.client_text import client_lines
from sim.report.pools_text import STATISTICS, phases_table, pools_table, sent_text
from sim.tables.table import Column, Table
from sim.tables.text import aligned, number, printable, yes_or_no

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
    if "latency_source" in summary:
        lines.append(printable(f"step times: {summary['latency_source']}"))
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
    if "gpu_hours" in summary:
        rates += ["gpu_hours", "mean_replicas"]
        counts += ["replica_starts", "time_below_slo_s"]
    rows = [
        (metric(rate).table_heading_with_unit, _value(summary, rate),
         f"  {metric(count).table_heading_with_unit}", _value(summary, count))
        for rate, count in zip(rates, counts, strict=True)
    ]  # fmt: skip
    return aligned(rows, gap=2, right={1, 3})


def _value(summary: Summary, name: str) -> str:
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
