"""The knee of a trade-off: where a little more of one thing begins to cost much of another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# In sides of the unit square. (The farthest point of a quarter circle is 0.29 from its chord.)
MIN_DISTANCE = 0.1


@dataclass(frozen=True, slots=True)
class Knee:
    """The point of a line that is farthest from its chord.

    Attributes:
        index: of the point.
        distance: from the chord, in sides of the unit square that the line is scaled to.
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
    the chord, which joins the first point to the last; where it is known what is better, the
    farthest on the better side. There is none if it is less than 0.1 away, or no farther than its
    own error; nor if a metric is the same at both ends, or everywhere; nor if one end is better in
    both, as nothing is traded then.

    Args:
        x: of the points, in order; logarithms where the axis is logarithmic.
        y: likewise.
        better: for x and y, 1 if more is better, -1 if less is, 0 if that is not known.
        x_errors: half-widths of the points' intervals; None: none.
        y_errors: likewise.
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
