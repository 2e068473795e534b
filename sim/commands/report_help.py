"""The help of `simulate report`, which lists the metrics that plots may name."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

if TYPE_CHECKING:
    from sim.metrics.registry import Metric

_TITLE = (
    "Metrics of the report section (a prefix hot., cold., tenants.NAME. or pools.NAME. selects"
    " requests)"
)


class ReportHelp(TyperCommand):
    """A command whose help ends with every metric: its definition and its unit."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section(_TITLE):
            formatter.write_dl(list(_metric_rows()))


def _metric_rows() -> Iterator[tuple[str, str]]:
    """The statistics of a latency share a row."""
    # Only this help needs them.
    from sim.metrics.registry import LATENCIES, PHASES, POOL_METRICS, RUN_METRICS

    shown = set()
    for latency in (*LATENCIES.values(), *PHASES.values()):
        shown |= {f"{name}_{latency.name}_ms" for name in latency.statistics}
        statistics = f"{', '.join(latency.statistics)} over {latency.samples} [ms]"
        definition = f"{latency.label}: {latency.definition}; {statistics}"
        yield f"STATISTIC_{latency.name}_ms", definition
    for known in RUN_METRICS.values():
        if known.name not in shown:
            yield _row(known.name, known)
    for name, known in POOL_METRICS.items():
        if name not in RUN_METRICS:
            yield _row(f"pools.NAME.{name}", known)


def _row(name: str, known: "Metric") -> tuple[str, str]:
    return name, f"{known.definition}{f' [{known.unit}]' if known.unit else ''}"
