"""Table columns of metrics: headings from the registry, cells with means and intervals."""

from collections.abc import Iterable, Mapping

from sim.metrics.confidence import MeanInterval
from sim.metrics.registry import metric
from sim.tables.table import Column
from sim.tables.text import UNDEFINED, number


def interval_columns(
    names: Iterable[str], headings: Mapping[str, str] | None = None
) -> list[Column]:
    """A column of intervals for each metric; `headings` replaces the registry's, by metric."""
    own = headings or {}
    return [
        Column(own.get(name, metric(name).table_heading_with_unit), to_text=interval_text)
        for name in names
    ]


def interval_text(interval: MeanInterval) -> str:
    """`12.3 ± 0.4`, or only the mean if there is no interval."""
    if interval.mean is None:
        return UNDEFINED
    if interval.half_width is None:
        return number(interval.mean)
    return f"{number(interval.mean)} ± {number(interval.half_width)}"
