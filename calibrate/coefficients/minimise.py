"""Finds the amounts with the smallest residuals, by linear steps in a trust region.

A simulation decides some steps differently after a small change, so residuals jump. A step is
therefore taken only if it makes the residuals smaller.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import lsq_linear

from calibrate.measured.equations import huber_squares, huber_weights
from sim.core.arrays import Float64

Residuals = Callable[[Float64], Float64]
# The change of each residual with each amount, for differences of these widths, in shape
# [num_residuals, num_amounts]; and amounts whose residuals are known by then.
Slopes = Callable[[Float64, Float64], tuple[Float64, Sequence[Float64]]]

# A difference is so wide that times change by about this share.
_CHANGE = 0.05
# The first differences: this share of the amount, and at least that of a half.
_FIRST_WIDTH = 0.05
_LEAST_AMOUNT = 0.5
_WIDEST = 0.5
_MOST_CUTS = 3
_REWEIGHTINGS = 15
_CUT = 4.0
# The search ends after `_MOST_IDLE` rounds in a row that shrink the residuals by less than this
# share.
_GAIN = 0.005
_MOST_IDLE = 2


class Minimum(NamedTuple):
    """Where the search ended: the amounts, the residuals there, and the widths of differences."""

    amounts: Float64
    residuals: Float64
    widths: Float64


def size(residuals: Float64, weight: Float64) -> float:
    """Weighted root mean square of the residuals; large ones count linearly."""
    return float(np.sqrt((weight * huber_squares(residuals)).sum() / weight.sum()))


def measured_slopes(residuals: Residuals, lowest: Sequence[float]) -> Slopes:
    """Slopes over differences of whole simulations, whose ends are points that were tried."""

    def slopes(at: Float64, widths: Float64) -> tuple[Float64, Sequence[Float64]]:
        ends = list(_ends(at, lowest, widths))
        columns = [(residuals(up) - residuals(down)) / (up - down).sum() for up, down in ends]
        return np.column_stack(columns), [end for pair in ends for end in pair]

    return slopes


def _ends(
    at: Float64, lowest: Sequence[float], widths: Float64
) -> Iterator[tuple[Float64, Float64]]:
    """The two ends of the difference of each amount."""
    for place in range(len(at)):
        above, below = at.copy(), at.copy()
        above[place] += widths[place]
        below[place] = max(below[place] - widths[place], lowest[place])
        yield above, below


def effects(slope: Float64, weight: Float64) -> Float64:
    """Root mean square of each amount's slopes."""
    effect: Float64 = np.sqrt((weight[:, None] * slope**2).sum(axis=0) / weight.sum())
    return effect


def next_widths(slope: Float64, weight: Float64) -> Float64:
    """The widths at which times change as much as a difference should."""
    width: Float64 = _CHANGE / np.maximum(effects(slope, weight), _CHANGE / _WIDEST)
    return width


def minimise(
    residuals: Residuals,
    start: Float64,
    *,
    slopes: Slopes,
    lowest: Sequence[float],
    weigh: Residuals,
    most_rounds: int,
) -> Minimum:
    """Search from a start. Equal input gives equal trials.

    Args:
        residuals: of some amounts.
        start: the amounts to begin with.
        slopes: see `Slopes`.
        lowest: the lowest amounts.
        weigh: how much each residual counts, given all of them.
        most_rounds: the most steps.
    """
    at = np.maximum(start, lowest)
    region = 1.0
    widths = _FIRST_WIDTH * np.maximum(at, _LEAST_AMOUNT)
    num_idle = 0
    for _ in range(most_rounds):
        here = residuals(at)
        weight = weigh(here)
        before = size(here, weight)
        slope, known = slopes(at, widths)
        widths = next_widths(slope, weight)
        tried = [*known]
        for _ in range(_MOST_CUTS):
            tried.append(at + _step(here, slope, weight, _bounds(at, lowest, region)))
            if size(residuals(tried[-1]), weight) < before:
                break
            region /= _CUT
        best = min(tried, key=lambda amounts: size(residuals(amounts), weight))
        after = size(residuals(best), weight)
        if after < before:
            at = best
        num_idle = num_idle + 1 if after > before * (1 - _GAIN) else 0
        if num_idle == _MOST_IDLE:
            break
    return Minimum(at, residuals(at), widths)


def _bounds(at: Float64, lowest: Sequence[float], region: float) -> tuple[Float64, Float64]:
    reach = region * np.maximum(at, _LEAST_AMOUNT)
    return np.maximum(np.asarray(lowest) - at, -reach), reach


def _step(
    here: Float64, slope: Float64, weight: Float64, bounds: tuple[Float64, Float64]
) -> Float64:
    """The step within the bounds that is best if the residuals are linear."""
    low, high = bounds
    step = np.zeros(slope.shape[1])
    root = np.zeros_like(here)
    for _ in range(_REWEIGHTINGS):
        before, root = root, np.sqrt(weight * huber_weights(here + slope @ step))
        if np.array_equal(root, before):
            break
        # For the few amounts of a fit this method is exact, and much faster than the usual one.
        step = lsq_linear(slope * root[:, None], -here * root, (low, high), method="bvls").x
    return np.clip(step, low, high)
