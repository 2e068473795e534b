"""One run's summary as text: latencies on top, totals and rates below."""

from sim.report.metrics import Summary
from sim.report.numbers import number, number_or_text, yes_or_no
from sim.report.text_table import aligned, headed_table, printable

_LATENCY_ROWS = {
    "TTFT": "ttft",
    "TPOT": "tpot",
    "ITL": "itl",
    "end to end": "e2e_latency",
    "queue time": "queue_time",
}
_STATISTICS = ("mean", "median", "p90", "p95", "p99")

# Of a tenant's row: heading and name.
_GROUP_COLUMNS = (
    ("finished", "completed"),
    ("requests/s", "request_throughput"),
    ("TTFT mean ms", "mean_ttft_ms"),
    ("p99 ms", "p99_ttft_ms"),
    ("longest wait ms", "max_wait_ms"),
    ("cache hit %", "cache_hit_rate_pct"),
    ("aged", "aged"),
)


def summary_text(summary: Summary, *, bold: bool = False) -> str:
    """The summary as lines, as wide as they need to be.

    Args:
        summary: of one run.
        bold: headings, by escape sequences; without, the text is the same wherever it is read.
    """
    lines = [*_latencies(summary, bold=bold), "", *_totals(summary)]
    if len(summary["tenants"]) > 1:
        lines += ["", *_tenants(summary, bold=bold)]
    if summary["rejected_rids"]:
        rest = summary["rejected"] - len(summary["rejected_rids"])
        more = f" and {rest} more" if rest else ""
        lines.append(printable(f"rejected: {', '.join(summary['rejected_rids'])}{more}"))
    if "latency_source" in summary:
        lines.append(printable(f"step times: {summary['latency_source']}"))
    return "".join(f"{line}\n" for line in lines)


def _latencies(summary: Summary, *, bold: bool) -> list[str]:
    rows = [
        [label, *(number(summary[f"{name}_{metric}_ms"]) for name in _STATISTICS)]
        for label, metric in _LATENCY_ROWS.items()
    ]
    return headed_table(["ms", *_STATISTICS], rows, min_width=8, bold=bold)


def _totals(summary: Summary) -> list[str]:
    rates = {
        "requests/s": summary["request_throughput"],
        "input tokens/s": summary["input_throughput"],
        "output tokens/s": summary["output_throughput"],
        "all tokens/s": summary["total_throughput"],
        "concurrency": summary["concurrency"],
        "cache hit rate %": summary["cache_hit_rate_pct"],
        "duration s": summary["duration"],
        "longest wait ms": summary["max_wait_ms"],
        "steps": summary["simulated_steps"],
    }
    counts = {
        "submitted": summary["submitted"],
        "finished": summary["completed"],
        "rejected": summary["rejected"],
        "aborted": summary["aborted"],
        "unfinished": summary["unfinished"],
        "retractions": summary["retractions"],
        "preemptions": summary["preemptions"],
        "aged": summary["aged"],
        "saturated": yes_or_no(summary["saturated"]),
    }
    if summary["goodput_slos_ms"]:
        rates["goodput/s"] = summary["request_goodput"]
        counts["SLO met %"] = 100 * (summary["slo_attainment"] or 0.0)
    if "host_hit_rate_pct" in summary:
        rates["from host memory %"] = summary["host_hit_rate_pct"]
        counts["tokens loaded"] = summary["total_loaded_tokens"]
    rows = [
        (rate, number(value), f"  {count}", number_or_text(amount))
        for (rate, value), (count, amount) in zip(rates.items(), counts.items(), strict=True)
    ]
    return aligned(rows, gap=2, right={1, 3})


def _tenants(summary: Summary, *, bold: bool) -> list[str]:
    """One row a tenant, then hot and cold requests, and how even it is."""
    groups = {**summary["tenants"], "(hot)": summary["hot"], "(cold)": summary["cold"]}
    rows = [
        [name, *(number(group[key]) for _, key in _GROUP_COLUMNS)] for name, group in groups.items()
    ]
    headings = ["tenant", *(heading for heading, _ in _GROUP_COLUMNS)]
    evenness = (
        f"Jain's index of TTFT {number(summary['jain_ttft'])}, of throughput by demand"
        f" {number(summary['jain_throughput'])}; the slowest 5 % carry"
        f" {number(summary['slowest_5pct_ttft_share_pct'])} % of all TTFT"
    )
    return [*headed_table(headings, rows, bold=bold), evenness]
