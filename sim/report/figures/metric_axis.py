"""Axes that show metrics: limits that fit all panels of a plot, units, ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from sim.core.arrays import Float64
from sim.metrics.confidence import MeanInterval
from sim.metrics.metric_name import MetricName
from sim.report.figures.marks import Axis, Limits
from sim.report.figures.scales import padded, wants_log

# An axis shows all means. Intervals widen it at each end by at most the range of the means, and by
# less on a logarithmic axis.
_REACH = 1.0
_LOG_REACH, _LEAST_RATIO = 0.3, 1.5
# Zero is near if the smallest mean is at most this share of the largest.
_NEAR_ZERO = 0.6


class Zero(Enum):
    """Whether a linear axis begins at zero, if no value is negative.

    `IF_NEAR`: if the smallest mean is near zero. `IF_SHOWN`: if the margin below the smallest value
    reaches zero.
    """

    ALWAYS = "always"
    IF_NEAR = "if near"
    IF_SHOWN = "if shown"


@dataclass(frozen=True, slots=True)
class MetricAxis:
    """How an axis shows a metric.

    Attributes:
        axis: its title, scale and limits.
        is_cut: whether an interval is cut off at an end of the axis.
        leaves_out: whether an interval is not shown, see `shown`.
    """

    axis: Axis
    is_cut: bool
    leaves_out: bool

    @staticmethod
    def of(
        metrics: Sequence[MetricName],
        shown: Sequence[MeanInterval],
        *,
        scale: str | None,
        label: str | None,
        zero: Zero = Zero.IF_NEAR,
    ) -> "MetricAxis":
        """Fit an axis to what it shows.

        Args:
            metrics: one metric, perhaps of several groups of requests.
            shown: all intervals on the axis; those without a mean are left out.
            scale: `linear` or `log`, if the user says so.
            label: the title, if the user says so.
            zero: whether a linear axis begins at zero.
        """
        defined = [interval for interval in shown if interval.mean is not None]
        is_log = wants_log([interval.mean or 0.0 for interval in defined], scale)
        metric = metrics[0]
        words = metric.long_label if len(metrics) == 1 else metric.label
        is_latency = metric.unit == "ms" and is_log
        # Ticks of times on a logarithmic axis have their own units.
        unit = f" ({metric.unit})" if metric.unit and not is_latency else ""
        unit += ", log scale" if is_log else ""
        limits = _limits(defined, is_log, zero)
        axis = Axis(label=label or f"{words}{unit}", limits=limits, is_log=is_log,
                    is_latency=is_latency)  # fmt: skip
        fitting = [interval for interval in defined if _fits(interval, axis)]
        is_cut = any(
            not limits[0] <= end <= limits[1] for interval in fitting for end in interval.ends
        )
        return MetricAxis(axis, is_cut, len(fitting) < len(defined))

    def shown(self, interval: MeanInterval) -> MeanInterval:
        """The interval as the axis shows it.

        Without its ends if the lower one is below a logarithmic axis: on such an axis, zero is
        infinitely far down, so that a band to its floor would say nothing.
        """
        fits = _fits(interval, self.axis)
        return interval if fits else MeanInterval(interval.mean, None, interval.count)


def value_axis(
    metrics: Sequence[MetricName], values: Sequence[float], *, scale: str | None, label: str | None
) -> Axis:
    """An axis that fits values without intervals."""
    shown = [MeanInterval(value, None, 1) for value in values]
    return MetricAxis.of(metrics, shown, scale=scale, label=label).axis


def axis_from_zero(label: str, *values: Float64, is_whole: bool = False) -> Axis:
    """A linear axis from zero to a little above the largest value; `is_whole`: they are counts."""
    most = max((float(np.nanmax(each, initial=0.0)) for each in values), default=0.0) or 1.0
    limits = (0.0, 1.05 * most)
    ticks = round_ticks(limits, least_step=1.0) if is_whole else ()
    return Axis(label=label, limits=limits, ticks=[(at, f"{at:,.0f}") for at in ticks])


def round_ticks(limits: Limits, least_step: float = 0.0) -> list[float]:
    """Round numbers between the ends of a linear axis: four to ten."""
    span = limits[1] - limits[0]
    power = 10.0 ** math.floor(math.log10(span / 9))
    step = next(s for s in (power, 2 * power, 5 * power, 10 * power) if s >= span / 9)
    step = max(step, least_step)
    first, last = math.ceil(limits[0] / step - 1e-9), math.floor(limits[1] / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def log_ticks(limits: Limits) -> list[float]:
    """Powers of ten between the ends of a logarithmic axis; with 2 and 5 if they are few."""
    powers = range(math.floor(math.log10(limits[0])), math.ceil(math.log10(limits[1])) + 1)
    digits = (1, 2, 5) if limits[1] < 50 * limits[0] else (1,)
    ticks = [digit * 10.0**power for power in powers for digit in digits]
    return [tick for tick in ticks if limits[0] <= tick <= limits[1]]


def _fits(interval: MeanInterval, axis: Axis) -> bool:
    return not axis.is_log or not interval.half_width or interval.ends[0] >= axis.limits[0]


def _limits(defined: Sequence[MeanInterval], is_log: bool, zero: Zero) -> Limits:
    means = [interval.mean or 0.0 for interval in defined]
    means = [mean for mean in means if mean > 0 or not is_log]
    if not means:
        return (1.0, 10.0) if is_log else (0.0, 1.0)
    low, high = _with_intervals(defined, 0.0 if zero is Zero.ALWAYS and not is_log else min(means),
                                max(means), is_log)  # fmt: skip
    if is_log:
        return padded(low, high, 0.08, is_log=True)
    is_near = zero is Zero.IF_NEAR and min(means) <= _NEAR_ZERO * max(means)
    low_end, high_end = padded(low, high, 0.1, is_log=False)
    if min(means) >= 0 and (zero is Zero.ALWAYS or is_near or low_end <= 0):
        return 0.0, 1.08 * high if high else 1.0
    return low_end, high_end


def _with_intervals(
    defined: Sequence[MeanInterval], low: float, high: float, is_log: bool
) -> Limits:
    """The range of the means, widened by their intervals."""
    lowest = min(interval.ends[0] for interval in defined)
    highest = max(interval.ends[1] for interval in defined)
    if is_log:
        reach = max(math.exp(_LOG_REACH * math.log(high / low)), _LEAST_RATIO)
        return max(lowest, low / reach), min(highest, high * reach)
    if high == low:
        return lowest, highest
    reach = _REACH * (high - low)
    return max(lowest, low - reach), min(highest, high + reach)
