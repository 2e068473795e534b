"""Fits how a cost grows with a size."""

from collections.abc import Sequence
from math import log

from sim.core.errors import InputError


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The exponent e of cost = c x size**e, by least squares of the logarithms.

    Args:
        sizes: positive, at least two different ones.
        costs: positive, one for each size.

    Raises:
        InputError: there are fewer than two different sizes, or a cost is not above 0.
    """
    if len(set(sizes)) < 2 or min(costs) <= 0:
        raise InputError(f"no exponent can be fitted to costs {list(costs)} of sizes {list(sizes)}")
    x, y = [log(size) for size in sizes], [log(cost) for cost in costs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)
