"""The page that lists every metric of a summary."""

from collections.abc import Iterable, Iterator

from reference.tables import table
from sim.metrics.registry import GROUP_METRICS, RUN_METRICS, Better, Metric

PATH = "reference/metrics.md"
_BETTER = {Better.HIGHER: "more", Better.LOWER: "less", Better.NEITHER: ""}
_HEADER = ("name", "in words", "unit", "better", "definition")
_INTRO = """\
# Metrics

The numbers of a run's summary (`simulate run FILE --format json`) by name. A plot of a `report`
section takes any of them, and so does a search."""
_GROUPS = """\
## Of a group of requests

A summary has these again for the requests of each tenant and for hot and cold requests
([tenants](../how-to/tenants.md)). A plot takes them by a path, such as `hot.p99_ttft_ms`."""


def metrics_page() -> str:
    """The page's text."""
    run, group = (table(_HEADER, _rows(m.values())) for m in (RUN_METRICS, GROUP_METRICS))
    return f"{_INTRO}\n\n{run}\n\n{_GROUPS}\n\n{group}\n"


def _rows(metrics: Iterable[Metric]) -> Iterator[tuple[str, ...]]:
    for metric in metrics:
        better = _BETTER[metric.better]
        yield f"`{metric.name}`", metric.label, metric.unit, better, metric.definition
