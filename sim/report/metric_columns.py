"""Columns of metrics in tables: headings from the registry, means with their intervals."""

from collections.abc import Iterable, Mapping

from sim.metrics.confidence import MeanInterval
from sim.metrics.registry import metric
from sim.tables.table import Column
from sim.tables.text import UNDEFINED, number


def interval_columns(
    names: Iterable[str], headings: Mapping[str, str] | None = None
) -> list[Column]:
    """A column of intervals for each metric.

    Args:
        names: of the metrics.
        headings: where a table calls a metric otherwise than the registry does.
    """
    own = headings or {}
    return [
        Column(own.get(name, metric(name).table_heading_with_unit), to_text=interval_text)
        for name in names
    ]


def interval_text(interval: MeanInterval) -> str:
    """`12.3 ± 0.4`; the mean alone without an interval."""
    if interval.mean is None:
        return UNDEFINED
    if interval.half_width is None:
        return number(interval.mean)
    return f"{number(interval.mean)} ± {number(interval.half_width)}"
