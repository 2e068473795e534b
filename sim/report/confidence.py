"""Means of repeated runs with 95 % confidence intervals, without scipy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# With two runs the interval is thirteen times the spread: it says nothing.
MIN_RUNS = 3
_LEVEL = 0.95
_PRECISION = 1e-13


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean and how far the true one may be from it.

    Attributes:
        mean: of the runs; None if there are none.
        half_width: the mean lies within this of the true one in 95 of 100 cases, if runs are
            normally distributed; None with fewer than three runs.
        count: how many runs.
    """

    mean: float | None
    half_width: float | None
    count: int


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """Student's interval around the mean of independent runs."""
    count = len(values)
    if not count:
        return MeanInterval(None, None, 0)
    array = np.array(values, dtype=np.float64)
    mean = float(array.mean())
    if count < MIN_RUNS:
        return MeanInterval(mean, None, count)
    error = float(array.std(ddof=1)) / math.sqrt(count)
    return MeanInterval(mean, t_quantile(count - 1) * error, count)


def t_quantile(degrees: int) -> float:
    """How many standard errors to either side hold 95 % of Student's distribution.

    Args:
        degrees: of freedom, at least 1.
    """
    low, high = 0.0, 13.0  # 12.7 with one degree, ever less with more
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        if _share_within(middle, degrees) < _LEVEL:
            low = middle
        else:
            high = middle
    return high


def _share_within(bound: float, degrees: int) -> float:
    """Share of Student's distribution between -bound and bound; a finite sum for whole degrees.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(bound / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2
    total, term = 0.0, cosine if is_odd else 1.0
    for power in range(2 + is_odd, degrees + 1, 2):
        total += term
        term *= cosine * cosine * (power - 1) / power
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
