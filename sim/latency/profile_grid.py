"""Linear interpolation on a grid, held at its edges: one number at a time, or many.

Both ways do the same operations in the same order, so that they agree to the bit.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


class Line:
    """A piecewise linear function; constant before its first knot and after its last."""

    def __init__(self, knots: Sequence[float], values: Sequence[float]) -> None:
        self._knots = list(knots)
        self._values = list(values)
        points = list(zip(knots, values, strict=True))
        self._slopes = [(v1 - v0) / (x1 - x0) for (x0, v0), (x1, v1) in pairwise(points)]
        # After the last knot nothing changes.
        self._slopes.append(0.0)
        self._arrays = tuple(np.array(a) for a in (self._knots, self._values, self._slopes))

    def at(self, x: float) -> float:
        index = bisect_right(self._knots, x) - 1
        if index < 0:
            return self._values[0]
        return self._values[index] + self._slopes[index] * (x - self._knots[index])

    def at_many(self, x: Float64) -> Float64:
        knots, values, slopes = self._arrays
        index = np.searchsorted(knots, x, side="right") - 1
        inside: Float64 = values[index] + slopes[index] * (x - knots[index])
        return np.where(index < 0, values[0], inside)


class Surface:
    """A table over two axes: bilinear between its knots, constant beyond its edges."""

    def __init__(
        self,
        first_knots: Sequence[float],
        second_knots: Sequence[float],
        values: Sequence[Sequence[float]],
    ) -> None:
        self._first_knots = list(first_knots)
        self._lines = [Line(second_knots, row) for row in values]
        self._second_knots = list(second_knots)
        self._values = [list(row) for row in values]

    def at(self, first: float, second: float) -> float:
        index, share = self._place(first)
        low = self._lines[index].at(second)
        if not share:
            return low
        return low + share * (self._lines[index + 1].at(second) - low)

    def line(self, first: float) -> Line:
        """The function of the second axis at one place of the first."""
        index, share = self._place(first)
        if not share:
            return self._lines[index]
        values = [
            low + share * (high - low)
            for low, high in zip(self._values[index], self._values[index + 1], strict=True)
        ]
        return Line(self._second_knots, values)

    def _place(self, first: float) -> tuple[int, float]:
        """The knot below, and how far towards the next one, from 0 to less than 1."""
        knots = self._first_knots
        index = bisect_right(knots, first) - 1
        if index < 0:
            return 0, 0.0
        if index == len(knots) - 1:
            return index, 0.0
        return index, (first - knots[index]) / (knots[index + 1] - knots[index])
