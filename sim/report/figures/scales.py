"""Axes of swept values: numbers stand to scale, infinity to their right, names in their order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sim.core.arrays import Float64
from sim.report.figures.marks import Axis, Limits
from sim.report.key_text import number_of, value_text
from sim.report.plot_check import is_number
from sim.sweep.design import same

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
        key: the swept key.
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

    def axis(
        self, label: str, width_px: float, *, margin: float = 0.06, limits: Limits | None = None
    ) -> Axis:
        """The axis, about `width_px` wide, with margins on both ends or with given limits."""
        places = sorted(self.places.values())
        axis = Axis(label=label, is_log=self.is_log,
                    limits=limits or padded(places[0], places[-1], margin, is_log=self.is_log),
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
