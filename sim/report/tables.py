"""Summaries as text tables: one run, or several side by side."""

import io
from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from sim.report.metrics import Summary

_UNDEFINED = "-"
# Shown with one digit, it is no difference.
_NO_CHANGE = 0.05
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

# Label, summary name, unit, and whether more is better (None: neither).
_COMPARED: tuple[tuple[str, str, str, bool | None], ...] = (
    ("finished", "completed", "requests", True),
    ("duration", "duration", "s", False),
    ("requests", "request_throughput", "/s", True),
    ("output", "output_throughput", "tokens/s", True),
    ("all tokens", "total_throughput", "tokens/s", True),
    ("goodput", "request_goodput", "/s", True),
    ("cache hit rate", "cache_hit_rate_pct", "%", True),
    ("from host memory", "host_hit_rate_pct", "%", None),
    ("TTFT mean", "mean_ttft_ms", "ms", False),
    ("TTFT median", "median_ttft_ms", "ms", False),
    ("TTFT p99", "p99_ttft_ms", "ms", False),
    ("TPOT mean", "mean_tpot_ms", "ms", False),
    ("TPOT p99", "p99_tpot_ms", "ms", False),
    ("ITL p99", "p99_itl_ms", "ms", False),
    ("end to end mean", "mean_e2e_latency_ms", "ms", False),
    ("end to end p99", "p99_e2e_latency_ms", "ms", False),
    ("longest wait", "max_wait_ms", "ms", False),
    ("retractions", "retractions", "", None),
    ("preemptions", "preemptions", "", None),
    ("aged", "aged", "", None),
)


def summary_table(summary: Summary) -> Table:
    """One run: latencies on top, totals and rates below."""
    outer = Table.grid()
    outer.add_row(_latency_table(summary))
    outer.add_row(_totals_table(summary))
    if len(summary["tenants"]) > 1:
        outer.add_row(_tenant_table(summary))
    if summary["rejected_rids"]:
        rest = summary["rejected"] - len(summary["rejected_rids"])
        more = f" and {rest} more" if rest else ""
        outer.add_row(escape(f"rejected: {', '.join(summary['rejected_rids'])}{more}"))
    if "latency_source" in summary:
        outer.add_row(escape(f"step times: {summary['latency_source']}"))
    return outer


def comparison_table(summaries: Mapping[str, Summary]) -> Table:
    """Runs side by side, each with its relative difference to the first one.

    Percentages differ by points (pp). A metric undefined in every run has no row.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("")
    first_name, *other_names = summaries
    table.add_column(escape(first_name), justify="right")
    for name in other_names:
        table.add_column(escape(name), justify="right")
        table.add_column("", justify="right")
    for label, key, unit, more_is_better in _COMPARED:
        values = [summary.get(key) for summary in summaries.values()]
        if all(value is None for value in values):
            continue
        cells = [number(values[0])]
        for value in values[1:]:
            cells += [number(value), _difference(values[0], value, unit, more_is_better)]
        table.add_row(label, unit, *cells)
    saturated = [
        cell for summary in summaries.values() for cell in ("", _yes(summary["saturated"]))
    ]
    table.add_row("saturated", "", *saturated[1:])
    return table


def to_text(renderable: RenderableType) -> str:
    """The table as plain text, as wide as it needs: the same bytes wherever it is printed."""
    console = Console(
        file=io.StringIO(),
        width=10_000,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
    )
    width = Measurement.get(console, console.options, renderable).maximum
    with console.capture() as captured:
        console.print(renderable, width=width)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def number(value: float | None) -> str:
    """Three or more significant digits, thousands separated; whole numbers in full."""
    if value is None:
        return _UNDEFINED
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def _latency_table(summary: Summary) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("ms")
    for name in _STATISTICS:
        table.add_column(name, justify="right", min_width=8)
    for label, metric in _LATENCY_ROWS.items():
        table.add_row(label, *(number(summary[f"{name}_{metric}_ms"]) for name in _STATISTICS))
    table.add_row()
    return table


def _totals_table(summary: Summary) -> Table:
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
        "saturated": _yes(summary["saturated"]),
    }
    if summary["goodput_slos_ms"]:
        rates["goodput/s"] = summary["request_goodput"]
        counts["SLO met %"] = 100 * (summary["slo_attainment"] or 0.0)
    if "host_hit_rate_pct" in summary:
        rates["from host memory %"] = summary["host_hit_rate_pct"]
        counts["tokens loaded"] = summary["total_loaded_tokens"]
    table = Table.grid(padding=(0, 2))
    for _ in range(2):
        table.add_column(justify="left")
        table.add_column(justify="right")
    for (rate, value), (count, amount) in zip(rates.items(), counts.items(), strict=True):
        table.add_row(rate, number(value), f"  {count}", _text(amount))
    return table


def _tenant_table(summary: Summary) -> Table:
    """One row a tenant, then hot and cold requests, and how even it is."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("tenant")
    for heading, _ in _GROUP_COLUMNS:
        table.add_column(heading, justify="right")
    rows = {**summary["tenants"], "(hot)": summary["hot"], "(cold)": summary["cold"]}
    for name, group in rows.items():
        table.add_row(escape(name), *(number(group[key]) for _, key in _GROUP_COLUMNS))
    evenness = Table.grid()
    evenness.add_row()
    evenness.add_row(table)
    evenness.add_row(
        f"Jain's index of TTFT {number(summary['jain_ttft'])}, of throughput by demand"
        f" {number(summary['jain_throughput'])}; the slowest 5 % carry"
        f" {number(summary['slowest_5pct_ttft_share_pct'])} % of all TTFT"
    )
    return evenness


def _text(value: str | float | None) -> str:
    return value if isinstance(value, str) else number(value)


def _yes(flag: bool | None) -> str:
    return _UNDEFINED if flag is None else "yes" if flag else "no"


def _difference(
    base: float | None, value: float | None, unit: str, more_is_better: bool | None
) -> str:
    if base is None or value is None:
        return ""
    if unit == "%":
        change, shown_as = value - base, "pp"
    elif base:
        change, shown_as = 100 * (value - base) / base, "%"
    else:
        return ""
    if abs(change) < _NO_CHANGE:
        return f"0.0 {shown_as}"
    text = f"{change:+,.1f} {shown_as}"
    if more_is_better is None:
        return text
    return f"[{'green' if (value > base) == more_is_better else 'red'}]{text}[/]"
