"""The table of a sweep over FAIRNESS_T: what each T finds in the cache, and who waits for it."""

from rich.box import SIMPLE_HEAD
from rich.table import Table

from sim.report.metric_names import MetricName
from sim.report.numbers import number
from sim.report.sweep_data import SweepData
from sim.report.words import value_text

HOT, COLD = "hot", "cold"
_COLUMNS = (
    ("hit rate\n%", "cache_hit_rate_pct"),
    ("TTFT ms\nmean", "mean_ttft_ms"),
    ("\np50", "median_ttft_ms"),
    ("\np99", "p99_ttft_ms"),
    ("hot ms\nmean", f"tenants.{HOT}.mean_ttft_ms"),
    ("\np99", f"tenants.{HOT}.p99_ttft_ms"),
    ("\nmax", f"tenants.{HOT}.max_ttft_ms"),
    ("cold ms\nmean", f"tenants.{COLD}.mean_ttft_ms"),
    ("\np99", f"tenants.{COLD}.p99_ttft_ms"),
    ("\nmax", f"tenants.{COLD}.max_ttft_ms"),
    ("\naged", "aged"),
)


def fairness_table(data: SweepData, key: str) -> Table:
    """One row a value of T, in the sweep's order; means over the seeds.

    Args:
        data: of a sweep whose tenants are `hot` and `cold`.
        key: of T.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("\nT ms", *(heading for heading, _ in _COLUMNS)):
        table.add_column(heading, justify="right")
    for setting in data.design.settings:
        cells = [_cell(data.interval(setting, MetricName.of(name)).mean) for _, name in _COLUMNS]
        table.add_row(value_text(key, setting[key]), *cells)
    return table


def _cell(value: float | None) -> str:
    """Counts have no decimals."""
    return f"{value:,.0f}" if value is not None and value.is_integer() else number(value)
