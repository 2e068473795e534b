"""A table of values over two axes."""

from bisect import bisect_right
from collections.abc import Sequence

from sim.latency.curves import Curve


class Surface:
    """Interpolates between the knots of two axes; beyond its edges values stay constant."""

    def __init__(
        self,
        first_knots: Sequence[float],
        second_knots: Sequence[float],
        values: Sequence[Sequence[float]],
    ) -> None:
        """Take for each knot of the first axis a row of values, one for each knot of the second."""
        self._first_knots = list(first_knots)
        self._second_knots = list(second_knots)
        self._curves = [Curve(second_knots, row, held=True) for row in values]

    def at(self, first: float, second: float) -> float:
        index, share = self._locate(first)
        low = self._curves[index].at(second)
        if not share:
            return low
        return low + share * (self._curves[index + 1].at(second) - low)

    def curve(self, first: float) -> Curve:
        """The values over the second axis at one place of the first."""
        index, share = self._locate(first)
        low = self._curves[index]
        if not share:
            return low
        pairs = zip(low.values, self._curves[index + 1].values, strict=True)
        values = [below + share * (above - below) for below, above in pairs]
        return Curve(self._second_knots, values, held=True)

    def _locate(self, first: float) -> tuple[int, float]:
        """Returns the index of the knot below `first`, and the share of the way to the next one."""
        knots = self._first_knots
        index = bisect_right(knots, first) - 1
        if index < 0:
            return 0, 0.0
        if index == len(knots) - 1:
            return index, 0.0
        return index, (first - knots[index]) / (knots[index + 1] - knots[index])
