"""Means of repeated runs with 95 % confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Two runs give no useful interval: it is thirteen times as wide as they are apart.
MIN_RUNS = 3
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean and how far the true one may be from it.

    Attributes:
        mean: of the runs; None if there are none.
        half_width: the mean lies within this of the true one in 95 of 100 cases, if runs are
            normally distributed; None with fewer than three runs.
        count: the number of runs.
    """

    mean: float | None
    half_width: float | None
    count: int

    @property
    def ends(self) -> tuple[float, float]:
        """The lower and the upper end; the mean twice where there is no interval."""
        mean, half = self.mean or 0.0, self.half_width or 0.0
        return mean - half, mean + half

    def scaled(self, factor: float) -> "MeanInterval":
        """The same in another unit: `scaled(100)` makes percent of a share."""
        mean, half = self.mean, self.half_width
        return MeanInterval(
            None if mean is None else factor * mean,
            None if half is None else factor * half,
            self.count,
        )


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
    # scipy takes a tenth of a second to load; a run that repeats nothing does without.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + _LEVEL) / 2))
