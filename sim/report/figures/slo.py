"""Lines at the limits of an SLO, on axes that show the percentiles that are held against them."""

from collections.abc import Mapping, Sequence
from typing import Literal

from sim.metrics.confidence import MeanInterval
from sim.metrics.metric_name import MetricName
from sim.report.figures.marks import Axis, Mark, Note, Rule
from sim.report.figures.metric_axis import MetricAxis
from sim.report.figures.styles import latency_text
from sim.sweep.results import SweepResults

SLO_COLOUR = "#b2182b"
# An axis is widened to a limit that is at most this many times its largest mean, or at least this
# part of its smallest one.
_REACH = 4.0


def limit_of(data: SweepResults, metrics: Sequence[MetricName]) -> float | None:
    """The SLO's limit of a panel's metric; None: it has none."""
    return data.slo_limits.get(metrics[0].base)


def widened(
    data: SweepResults, metrics: Sequence[MetricName], shown: Sequence[MeanInterval]
) -> list[MeanInterval]:
    """What an axis shows, with the SLO's limit if that is near."""
    limit = limit_of(data, metrics)
    means = [interval.mean for interval in shown if interval.mean is not None]
    if limit is None or not means or not min(means) / _REACH <= limit <= _REACH * max(means):
        return list(shown)
    return [*shown, MeanInterval(limit, None, 1)]


def limit_marks(limit_ms: float | None, axis: Axis, which: Literal["x", "y"] = "y") -> list[Mark]:
    """A dashed line at the limit, with `SLO 300 ms` where it begins; nothing off the axis."""
    if limit_ms is None or not axis.limits[0] <= limit_ms <= axis.limits[1]:
        return []
    text, is_x = f"SLO {latency_text(limit_ms)}", which == "x"
    return [
        Rule(axis=which, at=limit_ms, colour=SLO_COLOUR, width=1.1, dash=(5, 2)),
        Note(text=text, x=limit_ms if is_x else 0, y=0 if is_x else limit_ms, colour=SLO_COLOUR,
             dx=3, dy=4 if is_x else 2, x_is_share=not is_x, y_is_share=is_x, is_upright=is_x),
    ]  # fmt: skip


def slo_caption(data: SweepResults, axes: Mapping[tuple[MetricName, ...], MetricAxis]) -> str:
    """Says what the lines are, and which limits are off the axis; empty if there are none."""
    drawn, off = [], []
    for metrics, axis in axes.items():
        limit = limit_of(data, metrics)
        if limit is None:
            continue
        low, high = axis.axis.limits
        label = metrics[0].label
        if low <= limit <= high:
            drawn.append(f"{label} of {latency_text(limit)} at most")
        else:
            side = "above" if limit > high else "below"
            off.append(f"The SLO, {label} of {latency_text(limit)}, is {side} the axis.")
    found = [f"The dashed red line is the SLO: {', '.join(drawn)}."] if drawn else []
    return " ".join(dict.fromkeys([*found, *off]))
