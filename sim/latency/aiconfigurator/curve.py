"""Decode attention as a function of the rows' mean context, through a fixed set of knots.

The package answers for whole numbers of tokens, one at a time. The mean context is a fraction, and
a run of decode steps needs hundreds of times. So times are interpolated between knots. The knots
are fixed, so that an answer does not depend on earlier ones.
"""

from collections.abc import Callable

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


class ContextCurve:
    """Straight lines between the knots; the first and the last line go on beyond them.

    The package is asked for the time at a knot when a line first needs it, because an answer far
    from the measurements takes a tenth of a millisecond. (`Curve` needs all times at the start.)
    """

    def __init__(self, time_ms: Callable[[int], float]) -> None:
        """Take a function from whole tokens of context to milliseconds."""
        self._time_ms = time_ms
        self._at_knot_ms = np.full(len(KNOTS), np.nan)

    def time_ms(self, mean_contexts: Float64) -> Float64:
        """The times at these contexts, each equal to the bit to that of a call with it alone.

        Args:
            mean_contexts: in ascending order, shape [k] with k >= 1.
        """
        line = np.searchsorted(KNOTS, mean_contexts, side="right") - 1
        line = np.clip(line, 0, len(KNOTS) - 2)
        self._ask(int(line[0]), int(line[-1]) + 1)
        knot, at_knot_ms = KNOTS[line], self._at_knot_ms[line]
        rise_ms = self._at_knot_ms[line + 1] - at_knot_ms
        share = (mean_contexts - knot) / (KNOTS[line + 1] - knot)
        times_ms: Float64 = at_knot_ms + rise_ms * share
        return times_ms

    def _ask(self, first: int, last: int) -> None:
        for knot in range(first, last + 1):
            if np.isnan(self._at_knot_ms[knot]):
                self._at_knot_ms[knot] = self._time_ms(int(KNOTS[knot]))
