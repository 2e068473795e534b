"""Axes of pictures: of metrics, with limits that fit all panels of a plot; of swept values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from sim.core.arrays import Float64
from sim.metrics.points import MeanInterval
from sim.metrics.registry import MetricName
from sim.report.figures.key_text import number_of, value_text
from sim.report.figures.marks import Axis, Limits
from sim.report.figures.plot_check import is_number
from sim.sweep.results import same

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

    `is_cut`: an interval is cut off at an end of the axis; `leaves_out`: one is not shown, see
    `shown`.
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

        `shown` are all intervals on the axis; those without a mean are left out. `scale` and
        `label` are what the user says, if anything.
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


# Values that span more are shown on a logarithmic axis unless the user says otherwise.
LOG_SPAN = 20
_MAX_NAMED_TICKS = 14
_MIN_PLACES = 3
_CHARACTER_PX = 8.5


def wants_log(values: Sequence[float], scale: str | None) -> bool:
    """Whether an axis over these values is logarithmic; `scale` None: it depends on the values."""
    positive = [value for value in values if math.isfinite(value) and value > 0]
    if scale is not None:
        return scale == "log" and bool(positive)
    finite = [value for value in values if math.isfinite(value)]
    return len(positive) == len(finite) > 0 and max(positive) >= LOG_SPAN * min(positive)


@dataclass(frozen=True, slots=True)
class KeyAxis:
    """The places of swept values along an axis.

    Attributes:
        is_log: whether the axis is logarithmic; then 0 stands at its left end.
        places: the place of each value, by its text from `design.same`.
        texts: the label of each value, by the same text.
        detached: the values without a true place: infinity, null, 0 on a logarithmic axis.
        is_named: whether the values are names: then each of them has its label.
    """

    key: str
    is_log: bool
    places: dict[str, float]
    texts: dict[str, str]
    detached: frozenset[str]
    is_named: bool = False

    @staticmethod
    def of_numbers(key: str, values: Sequence[Any], scale: str | None) -> "KeyAxis":
        """Places numbers to scale, infinity and null to their right."""
        numbers = {same(value): number_of(key, value) for value in values}
        finite = sorted({number for number in numbers.values() if math.isfinite(number)})
        nonzero = [number for number in finite if number != 0]
        is_log = _wants_log_places(nonzero, scale) and all(number >= 0 for number in finite)
        step = _step([number for number in finite if number > 0 or not is_log], is_log)
        last = _moved(finite[-1], step, is_log, 1) if finite else 1.0
        places, detached = {}, set()
        for name, number in numbers.items():
            if is_log and number == 0:
                places[name] = _moved(nonzero[0], step, is_log, -1)
            elif math.isfinite(number):
                places[name] = number
                continue
            else:
                beyond = math.inf in numbers.values() and math.isnan(number)
                places[name] = _moved(last, step, is_log, 1) if beyond else last
            detached.add(name)
        texts = {same(value): value_text(key, value) for value in values}
        return KeyAxis(key, is_log, places, texts, frozenset(detached))

    @staticmethod
    def of_names(key: str, values: Sequence[Any]) -> "KeyAxis":
        """Any values, evenly spaced in their order."""
        places = {same(value): float(number) for number, value in enumerate(values)}
        texts = {same(value): value_text(key, value) for value in values}
        return KeyAxis(key, False, places, texts, frozenset(), is_named=True)

    def place(self, value: Any) -> float:
        return self.places[same(value)]

    def is_detached(self, value: Any) -> bool:
        return same(value) in self.detached

    def axis(self, label: str, width_px: float, *, limits: Limits | None = None) -> Axis:
        """The axis, about `width_px` wide, with margins on both ends or with given limits."""
        places = sorted(self.places.values())
        axis = Axis(label=label, is_log=self.is_log,
                    limits=limits or padded(places[0], places[-1], 0.06, is_log=self.is_log),
                    )  # fmt: skip
        if not self.is_named and len(places) > _MAX_NAMED_TICKS and not self.detached:
            return axis
        shown = self._fitting(axis, width_px)
        is_slanted = self.is_named and len(shown) < len(self.places)
        shown = list(self.places) if is_slanted else shown
        ticks = [(self.places[name], self.texts[name]) for name in shown]
        return replace(axis, ticks=ticks, is_slanted=is_slanted)

    def _fitting(self, axis: Axis, width_px: float) -> list[str]:
        """The values whose labels do not touch each other; detached ones have precedence."""
        taken: list[tuple[float, float]] = []
        shown = []
        for name in sorted(self.places, key=lambda name: (name not in self.detached,
                                                          self.places[name])):  # fmt: skip
            middle = float(axis.shares([self.places[name]])[0]) * width_px
            half = (len(self.texts[name]) + 1.5) * _CHARACTER_PX / 2
            if all(middle + half < left or middle - half > right for left, right in taken):
                taken.append((middle - half, middle + half))
                shown.append(name)
        return shown


def in_order(key: str, values: Sequence[Any]) -> list[Any]:
    """Numbers by size, infinity and null last; other values in the order that they have."""
    if all(value is None or is_number(value) for value in values):
        return sorted(values, key=lambda value: (math.isnan(n := number_of(key, value)), n))
    return list(values)


def padded(low: float, high: float, margin: float, *, is_log: bool) -> Limits:
    """Limits with a margin at both ends, given as a share of what the values span."""
    if is_log:
        factor: float = max((high / low) ** margin, 1.12)
        return low / factor, high * factor
    pad = margin * (high - low) or max(abs(high) * 0.05, 0.5)
    return low - pad, high + pad


def _wants_log_places(numbers: Sequence[float], scale: str | None) -> bool:
    """Whether an axis of rising numbers is logarithmic: they span much, or rise like 1, 2, 4."""
    if scale is not None or wants_log(numbers, None) or len(numbers) < _MIN_PLACES:
        return wants_log(numbers, scale)
    if numbers[0] <= 0:
        return False
    return _unevenness(np.diff(np.log(numbers))) < _unevenness(np.diff(numbers))


def _unevenness(gaps: Float64) -> float:
    return float(gaps.std() / gaps.mean())


def _step(numbers: Sequence[float], is_log: bool) -> float:
    """How far a detached value is placed from the nearest number: a factor or a difference."""
    if len(numbers) < 2:
        return 2.0 if is_log else 1.0
    gaps = max(3, len(numbers) - 1)
    if is_log:
        return max(1.6, math.exp(math.log(numbers[-1] / numbers[0]) / gaps))
    return float(numbers[-1] - numbers[0]) / gaps


def _moved(number: float, step: float, is_log: bool, steps: int) -> float:
    return float(number * step**steps if is_log else number + step * steps)
