"""Means of repeated runs with 95 % confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# The interval of two runs would be 13 times as wide as the difference between them.
MIN_RUNS = 3
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean of several runs, with its 95 % confidence interval.

    Attributes:
        mean: None if there are no runs.
        half_width: half of the interval's width, for normally distributed runs; None with fewer
            than three runs.
        count: the number of runs.
    """

    mean: float | None
    half_width: float | None
    count: int

    @property
    def ends(self) -> tuple[float, float]:
        """The lower and the upper end. Both are the mean if there is no interval."""
        mean, half = self.mean or 0.0, self.half_width or 0.0
        return mean - half, mean + half

    def scaled(self, factor: float) -> "MeanInterval":
        """The same in another unit: `scaled(100)` turns a share into percent."""
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
    """How many standard errors around the mean, each way, hold 95 % of Student's distribution."""
    # scipy takes a tenth of a second to load, and only repeated runs need it.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + _LEVEL) / 2))
