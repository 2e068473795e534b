"""Decode attention as a function of the rows' mean context, through a fixed set of knots.

The package answers for whole numbers of tokens, one at a time. The mean context is a fraction, and
a run of decode steps needs hundreds of times. So times are interpolated between knots. The knots
are fixed, so that an answer does not depend on earlier ones.
"""

from bisect import bisect_right
from collections.abc import Callable
from math import isnan, nan

import numpy as np

from sim.core.arrays import Float64

_KNOTS_PER_DOUBLING = 8
_NUM_DOUBLINGS = 18


def _knots() -> Float64:
    """1 to 8 tokens, then eight equal parts of every doubling up to 2**21."""
    octaves = [
        8 * 2**doubling + part * 2**doubling
        for doubling in range(_NUM_DOUBLINGS)
        for part in range(_KNOTS_PER_DOUBLING)
    ]
    return np.array([*range(1, 8), *octaves, 8 * 2**_NUM_DOUBLINGS], dtype=np.float64)


KNOTS = _knots()
_KNOTS: list[float] = KNOTS.tolist()
_LAST_LINE = len(_KNOTS) - 2


class ContextCurve:
    """Straight lines between the knots; the first and the last line go on beyond them.

    The package is asked for the time at a knot when a line first needs it, because an answer far
    from the measurements takes a tenth of a millisecond. (`Curve` needs all times at the start.)
    """

    def __init__(self, time_ms: Callable[[int], float]) -> None:
        """Take a function from whole tokens of context to milliseconds."""
        self._time_ms = time_ms
        self._at_knot_ms = [nan] * len(_KNOTS)

    def at_ms(self, mean_context: float) -> float:
        """The time at one context: equal to the bit to `time_ms`, and ten times as quick."""
        line = min(max(bisect_right(_KNOTS, mean_context) - 1, 0), _LAST_LINE)
        begin_ms, end_ms = self._at_knot(line), self._at_knot(line + 1)
        begin = _KNOTS[line]
        share = (mean_context - begin) / (_KNOTS[line + 1] - begin)
        return begin_ms + (end_ms - begin_ms) * share

    def time_ms(self, mean_contexts: Float64) -> Float64:
        """The times at these contexts, each equal to the bit to that of a call with it alone.

        Args:
            mean_contexts: in ascending order, shape [k] with k >= 1.
        """
        line = np.searchsorted(KNOTS, mean_contexts, side="right") - 1
        line = np.clip(line, 0, _LAST_LINE)
        first, last = int(line[0]), int(line[-1]) + 1
        at_knot_ms = np.array([self._at_knot(knot) for knot in range(first, last + 1)])
        knot, begin_ms = KNOTS[line], at_knot_ms[line - first]
        rise_ms = at_knot_ms[line + 1 - first] - begin_ms
        share = (mean_contexts - knot) / (KNOTS[line + 1] - knot)
        times_ms: Float64 = begin_ms + rise_ms * share
        return times_ms

    def _at_knot(self, knot: int) -> float:
        time_ms = self._at_knot_ms[knot]
        if isnan(time_ms):
            time_ms = self._at_knot_ms[knot] = self._time_ms(int(_KNOTS[knot]))
        return time_ms
