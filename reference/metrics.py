"""The page that lists every metric of a summary."""

from collections.abc import Iterator

from reference.tables import table
from sim.report.metric_names import MetricName, metric_names

PATH = "reference/metrics.md"
_BETTER = {1: "more", -1: "less", 0: ""}
_INTRO = """\
# Metrics

The numbers of a run's summary (`simulate run FILE --format json`) by name. A plot of a `report`
section takes any of them, and so does a search."""


def metrics_page() -> str:
    """The page's text."""
    rows = list(_rows())
    return f"{_INTRO}\n\n{table(('name', 'in words', 'unit', 'better'), rows)}\n"


def _rows() -> Iterator[tuple[str, ...]]:
    for name in metric_names():
        metric = MetricName.of(name)
        yield f"`{name}`", metric.long_label, metric.unit, _BETTER[metric.better]
