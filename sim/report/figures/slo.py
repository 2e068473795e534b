"""Lines at the limits of an SLO, on axes that show the percentiles that are held against them."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from sim.metrics.confidence import MeanInterval
from sim.metrics.metric_name import MetricName
from sim.report.figures.metric_axis import MetricAxis
from sim.report.plot_style import latency_text
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


def draw_limit(axes: Axes, limit_ms: float, which: str = "y") -> None:
    """A dashed line at the limit, with `SLO 300 ms` where it begins; nothing off the axis."""
    low, high = axes.get_ylim() if which == "y" else axes.get_xlim()
    if not low <= limit_ms <= high:
        return
    style: dict[str, Any] = {
        "color": SLO_COLOUR, "linewidth": 1.1, "linestyle": (0, (5, 2)), "zorder": 1,
    }  # fmt: skip
    # Lines may pass under the text.
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
    font: dict[str, Any] = {"color": SLO_COLOUR, "fontsize": 9, "bbox": box}
    text = f"SLO {latency_text(limit_ms)}"
    if which == "y":
        axes.axhline(limit_ms, **style)
        axes.annotate(text, (0, limit_ms), xycoords=("axes fraction", "data"), xytext=(3, 2),
                      textcoords="offset points", ha="left", va="bottom", **font)  # fmt: skip
    else:
        axes.axvline(limit_ms, **style)
        axes.annotate(text, (limit_ms, 0), xycoords=("data", "axes fraction"), xytext=(3, 4),
                      textcoords="offset points", rotation=90, ha="left", va="bottom",
                      **font)  # fmt: skip


def slo_caption(data: SweepResults, axes: Mapping[tuple[MetricName, ...], MetricAxis]) -> str:
    """Says what the lines are, and which limits are off the axis; empty if there are none."""
    drawn, off = [], []
    for metrics, axis in axes.items():
        limit = limit_of(data, metrics)
        if limit is None:
            continue
        low, high = axis.limits
        label = metrics[0].label
        if low <= limit <= high:
            drawn.append(f"{label} of {latency_text(limit)} at most")
        else:
            side = "above" if limit > high else "below"
            off.append(f"The SLO, {label} of {latency_text(limit)}, is {side} the axis.")
    found = [f"The dashed red line is the SLO: {', '.join(drawn)}."] if drawn else []
    return " ".join(dict.fromkeys([*found, *off]))
