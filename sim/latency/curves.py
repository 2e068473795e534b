"""Piecewise linear functions through measured points, with rules for sizes outside of the points.

`at` and `at_many` compute by the same operations in the same order, so their results agree to the
bit: a run of decode steps takes exactly as long as its steps one by one.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from sim.core.arrays import Float64


class Curve:
    """A function of one size, never negative.

    A curve is either *extended* or *held*. A held curve keeps the value of the nearest knot beyond
    its points. An extended curve goes on: below the first knot along the first segment; above the
    last knot along the line through the last knot and the knot at half its size. (On a grid of
    powers of two this line is the last segment. On a finer grid the last segment may only show the
    step from one kernel tile to the next, or noise.)

    Attributes:
        knots: the sizes that were measured, rising.
    """

    __slots__ = ("_arrays", "_is_held", "_slopes", "knots", "values")

    def __init__(
        self, knots: Sequence[float], values: Sequence[float], *, held: bool = False
    ) -> None:
        """Take at least one point; an extended curve of one point is constant."""
        self.knots = list(knots)
        self.values = list(values)
        points = list(zip(knots, values, strict=True))
        self._slopes = [(v1 - v0) / (x1 - x0) for (x0, v0), (x1, v1) in pairwise(points)]
        last_x, last_value = points[-1]
        x, value = points[_knot_at_half(self.knots)]
        is_flat = held or x == last_x
        self._slopes.append(0.0 if is_flat else (last_value - value) / (last_x - x))
        self._is_held = held
        self._arrays: tuple[Float64, Float64, Float64] | None = None

    @classmethod
    def through(cls, points: Mapping[float, float]) -> "Curve":
        knots = sorted(points)
        return cls(knots, [points[x] for x in knots])

    def at(self, x: float) -> float:
        index = bisect_right(self.knots, x) - 1
        if index < 0:
            if self._is_held:
                return self.values[0]
            index = 0
        value = self.values[index] + self._slopes[index] * (x - self.knots[index])
        return max(0.0, value)

    def at_many(self, x: Float64) -> Float64:
        """The values at many places; shape that of `x`."""
        if self._arrays is None:
            knots, values, slopes = map(np.array, (self.knots, self.values, self._slopes))
            self._arrays = knots, values, slopes
        knots, values, slopes = self._arrays
        if self._is_held:
            x = np.maximum(x, knots[0])
        index = np.maximum(np.searchsorted(knots, x, side="right") - 1, 0)
        return np.maximum(values[index] + slopes[index] * (x - knots[index]), 0.0)


def _knot_at_half(knots: Sequence[float]) -> int:
    """The index of the last knot that is at most half of the greatest one; 0 if there is none."""
    return max(bisect_right(knots, knots[-1] / 2) - 1, 0)


def bracket(knots: Sequence[float], x: float) -> tuple[int, int, float]:
    """Two knots to interpolate between at `x`, for curves whose values are curves themselves.

    Returns the index of the lower knot, the index of the upper one, and the share of the way from
    the lower to the upper one at which `x` lies. On a knot both indices are that knot's and the
    share is 0. Outside of the knots, the two knots are those that an extended `Curve` uses, and the
    share is below 0 or above 1.
    """
    index = bisect_right(knots, x) - 1
    last = len(knots) - 1
    if last == 0 or (index >= 0 and knots[index] == x):
        return max(index, 0), max(index, 0), 0.0
    if index == last:
        low, high = _knot_at_half(knots), last
    else:
        low = max(index, 0)
        high = low + 1
    return low, high, (x - knots[low]) / (knots[high] - knots[low])


def weighted_sum(parts: Iterable[tuple[float, Curve]]) -> Curve:
    """The sum of curves, each times its weight, as one extended curve."""
    parts = list(parts)
    knots = np.array(sorted({x for _, curve in parts for x in curve.knots}), dtype=np.float64)
    values = np.zeros(len(knots))
    for weight, curve in parts:
        values += weight * curve.at_many(knots)
    return Curve(knots.tolist(), values.tolist())


def between(low: Curve, high: Curve, share: float) -> Curve:
    """The extended curve at a share of the way from `low` to `high`; see `bracket`."""
    knots = low.knots if low.knots == high.knots else sorted({*low.knots, *high.knots})
    values = [low.at(x) + share * (high.at(x) - low.at(x)) for x in knots]
    return Curve(knots, values)
