"""Means and percentiles of samples, plain or weighted by how often each value occurs."""

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

_PERCENTILES = {"median": 50, "p90": 90, "p95": 95, "p99": 99}


def statistics(values: Float64, counts: NDArray[np.int64] | None = None) -> dict[str, float | None]:
    """Mean, median, std (of the population), p90, p95, p99 and max of the samples.

    Percentiles interpolate linearly between samples, as numpy's do.

    Args:
        values: any order.
        counts: `values[i]` stands for `counts[i]` equal samples; None: one each.
    """
    num_samples = len(values) if counts is None else int(counts.sum())
    if num_samples == 0:
        return dict.fromkeys(("mean", "median", "std", "p90", "p95", "p99", "max"))
    if counts is None:
        values, weights = np.sort(values), np.ones(len(values), dtype=np.int64)
    else:
        order = np.argsort(values, kind="stable")
        values, weights = values[order], counts[order]
    mean = float((values * weights).sum()) / num_samples
    variance = float(((values - mean) ** 2 * weights).sum()) / num_samples
    return {
        "mean": mean,
        **_percentiles(values, np.cumsum(weights)),
        "std": variance**0.5,
        "max": float(values[weights > 0][-1]),
    }


def _percentiles(values: Float64, num_up_to: NDArray[np.int64]) -> dict[str, float | None]:
    """Percentiles of sorted values, `num_up_to[i]` samples being `values[i]` or earlier."""
    last = int(num_up_to[-1]) - 1
    found: dict[str, float | None] = {}
    for name, percent in _PERCENTILES.items():
        rank = last * (percent / 100)
        below = int(rank)
        ranks = np.array([below, min(below + 1, last)])
        low, high = values[np.searchsorted(num_up_to, ranks, side="right")].tolist()
        found[name] = low + (high - low) * (rank - below)
    return found
