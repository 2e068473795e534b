"""Points of a sweep: means of repeated runs with 95 % confidence intervals, and a line's knee.

At the knee of a trade-off a little more of one thing begins to cost much of another.
"""

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


# The quantiles of two to ten degrees of freedom, as scipy has them. It takes 0.2 s to load, as long
# as ten short runs, and few sweeps have more seeds.
_T_QUANTILES = (
    4.302652729749462, 3.1824463052837078, 2.7764451051977934, 2.5705818356363146,
    2.4469118511449786, 2.364624251592784, 2.306004135204166, 2.262157162798205, 2.228138851986274,
)  # fmt: skip


def t_quantile(degrees: int) -> float:
    """How many standard errors around the mean, each way, hold 95 % of Student's distribution."""
    if 2 <= degrees < 2 + len(_T_QUANTILES):
        return _T_QUANTILES[degrees - 2]
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + _LEVEL) / 2))


def chance_of_mean(values: Sequence[float]) -> float:
    """The two-sided p-value of Student's t test that the mean of independent runs is not zero."""
    from scipy.special import stdtr

    array = np.array(values, dtype=np.float64)
    error = float(array.std(ddof=1)) / math.sqrt(len(values))
    if error == 0:
        return 0.0 if array.mean() else 1.0
    return float(2 * stdtr(len(values) - 1, -abs(float(array.mean())) / error))


# In edges of the unit square. For comparison: a quarter circle is at most 0.29 from its chord.
MIN_DISTANCE = 0.1


@dataclass(frozen=True, slots=True)
class Knee:
    """The point of a line that is farthest from its chord.

    Attributes:
        distance: distance from the chord, after the line is scaled to the unit square.
    """

    index: int
    distance: float


def find_knee(
    x: Sequence[float],
    y: Sequence[float],
    *,
    better: tuple[int, int] = (0, 0),
    x_errors: Sequence[float] | None = None,
    y_errors: Sequence[float] | None = None,
) -> Knee | None:
    """The knee of a line of points, if the line bends.

    Both metrics are scaled to run from 0 to 1 over the line. The knee is the point farthest from
    the chord, which joins the first point to the last. If `better` is known for both metrics, only
    points that are better than the chord count. There is no knee

    * if that point is less than 0.1 from the chord, or no farther than its own error;
    * if a metric has the same value at both ends of the line;
    * if one end is better in both metrics, because then there is no trade-off.

    Points are in order; `x` is a logarithm if the axis is logarithmic. `better` has for x and y: 1
    if more is better, -1 if less is better, 0 if that is not known. Errors are half-widths of
    confidence intervals; None: there are no intervals.
    """
    if len(x) < 3:
        return None
    xs, ys = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    spans = np.ptp(xs), np.ptp(ys)
    if 0 in spans or xs[0] == xs[-1] or ys[0] == ys[-1]:
        return None
    xs, ys = (xs - xs.min()) / spans[0], (ys - ys.min()) / spans[1]
    if (xs[-1] - xs[0]) * better[0] * (ys[-1] - ys[0]) * better[1] > 0:
        return None
    normal = np.array([ys[0] - ys[-1], xs[-1] - xs[0]])
    normal /= np.hypot(*normal)
    distances = normal[0] * (xs - xs[0]) + normal[1] * (ys - ys[0])
    towards_better = float(normal @ np.array(better)) if all(better) else 0.0
    distances = distances * np.sign(towards_better) if towards_better else np.abs(distances)
    index = int(np.argmax(distances))
    error = np.hypot(
        normal[0] * _at(x_errors, index) / spans[0], normal[1] * _at(y_errors, index) / spans[1]
    )
    distance = float(distances[index])
    return Knee(index, distance) if distance >= max(MIN_DISTANCE, float(error)) else None


def _at(errors: Sequence[float] | None, index: int) -> float:
    return 0.0 if errors is None else errors[index]
