"""Means and quantiles of samples, plain or weighted by how often each value occurs."""

from collections.abc import Sequence

import numpy as np

from sim.core.arrays import Float64, Int64

_PERCENTILES = {"median": 50, "p90": 90, "p95": 95, "p99": 99}
STATISTICS = ("mean", *_PERCENTILES, "std", "max")


def statistics(values: Float64, counts: Int64 | None = None) -> dict[str, float | None]:
    """The mean, percentiles, standard deviation (of the population) and maximum of samples.

    Args:
        values: in any order.
        counts: `values[i]` stands for `counts[i]` equal samples; None: each is one sample.

    Returns:
        One value for each name in `STATISTICS`; all are None if there is no sample.
    """
    values, weights = _sorted_samples(values, counts)
    num_samples = int(weights.sum())
    if num_samples == 0:
        return dict.fromkeys(STATISTICS)
    mean = float((values * weights).sum()) / num_samples
    variance = float(((values - mean) ** 2 * weights).sum()) / num_samples
    percentiles = _quantiles(values, weights, tuple(_PERCENTILES.values()))
    return {
        "mean": mean,
        **dict(zip(_PERCENTILES, percentiles, strict=True)),
        "std": variance**0.5,
        "max": float(values[weights > 0][-1]),
    }


def quantiles(
    values: Float64, percents: Sequence[float], counts: Int64 | None = None
) -> list[float]:
    """The quantiles of samples at these percents; empty if there is no sample.

    Like numpy's percentiles, they interpolate linearly between neighbouring samples.

    Args:
        values: in any order; NaN is ignored.
        percents: from 0 to 100.
        counts: see `statistics`.
    """
    known = ~np.isnan(values)
    values, weights = _sorted_samples(values[known], None if counts is None else counts[known])
    return _quantiles(values, weights, percents) if weights.sum() else []


def _sorted_samples(values: Float64, counts: Int64 | None) -> tuple[Float64, Int64]:
    if counts is None:
        return np.sort(values), np.ones(len(values), dtype=np.int64)
    order = np.argsort(values, kind="stable")
    return values[order], counts[order]


def _quantiles(values: Float64, weights: Int64, percents: Sequence[float]) -> list[float]:
    """Like `quantiles`, for sorted values of which at least one has a weight above 0."""
    num_up_to = np.cumsum(weights)
    last = int(num_up_to[-1]) - 1
    ranks = last * (np.array(percents) / 100)
    below = ranks.astype(np.int64)
    above = np.minimum(below + 1, last)
    low, high = (values[np.searchsorted(num_up_to, rank, side="right")] for rank in (below, above))
    found: list[float] = (low + (high - low) * (ranks - below)).tolist()
    return found
