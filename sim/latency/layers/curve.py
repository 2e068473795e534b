"""Piecewise linear functions through measured points, going on beyond them.

One number at a time, or many: both ways do the same operations in the same order, so that they
agree to the bit.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


class Curve:
    """Times over one size; never negative.

    Below its first knot a curve goes on along its first segment. Above its last one it goes on
    along the line to there from the knot at half that size: on a grid of powers of two that is the
    last segment, on a finer one a segment would have the slope of a kernel's tiles or of noise.
    """

    __slots__ = ("_arrays", "_slopes", "knots", "values")

    def __init__(self, knots: Sequence[float], values: Sequence[float]) -> None:
        """Take points; knots rise. One point is a constant."""
        self.knots = list(knots)
        self.values = list(values)
        points = list(zip(knots, values, strict=True))
        self._slopes = [(v1 - v0) / (x1 - x0) for (x0, v0), (x1, v1) in pairwise(points)]
        last_x, last_value = points[-1]
        x, value = points[last_doubling(self.knots)]
        self._slopes.append((last_value - value) / (last_x - x) if x < last_x else 0.0)
        self._arrays: tuple[Float64, Float64, Float64] | None = None

    @classmethod
    def through(cls, points: Mapping[float, float]) -> "Curve":
        """Through points in any order."""
        knots = sorted(points)
        return cls(knots, [points[x] for x in knots])

    def at(self, x: float) -> float:
        index = bisect_right(self.knots, x) - 1
        if index < 0:
            index = 0
        value = self.values[index] + self._slopes[index] * (x - self.knots[index])
        return max(0.0, value)

    def at_many(self, x: Float64) -> Float64:
        if self._arrays is None:
            knots, values, slopes = map(np.array, (self.knots, self.values, self._slopes))
            self._arrays = knots, values, slopes
        knots, values, slopes = self._arrays
        index = np.maximum(np.searchsorted(knots, x, side="right") - 1, 0)
        return np.maximum(values[index] + slopes[index] * (x - knots[index]), 0.0)


def last_doubling(knots: Sequence[float]) -> int:
    """The last knot at half of the greatest one or below; the first where there is none."""
    return max(bisect_right(knots, knots[-1] / 2) - 1, 0)


def place(knots: Sequence[float], x: float) -> tuple[int, int, float]:
    """The knots to go by at `x`, and how far it lies from the first towards the second.

    The share is below 0 under the first knot and above 1 over the last, by the rule of `Curve`.
    """
    index = bisect_right(knots, x) - 1
    last = len(knots) - 1
    if last == 0 or (index >= 0 and knots[index] == x):
        return max(index, 0), max(index, 0), 0.0
    if index == last:
        low, high = last_doubling(knots), last
    else:
        low = max(index, 0)
        high = low + 1
    return low, high, (x - knots[low]) / (knots[high] - knots[low])


def weighted_sum(parts: Iterable[tuple[float, Curve]]) -> Curve:
    """Curves times weights, added up, as one curve."""
    parts = list(parts)
    knots = np.array(sorted({x for _, curve in parts for x in curve.knots}), dtype=np.float64)
    values = np.zeros(len(knots))
    for weight, curve in parts:
        values += weight * curve.at_many(knots)
    return Curve(knots.tolist(), values.tolist())


def between(low: Curve, high: Curve, share: float) -> Curve:
    """The curve that lies so far from one to another; not necessarily between them."""
    knots = low.knots if low.knots == high.knots else sorted({*low.knots, *high.knots})
    values = [low.at(x) + share * (high.at(x) - low.at(x)) for x in knots]
    return Curve(knots, values)
