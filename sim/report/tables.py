"""Summaries side by side as a text table."""

import io
from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from sim.report.metrics import Summary
from sim.report.numbers import number, yes_or_no

# Shown with one digit, it is no difference.
_NO_CHANGE = 0.05
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
        cell for summary in summaries.values() for cell in ("", yes_or_no(summary["saturated"]))
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
