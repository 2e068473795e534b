"""Non-negative sums of terms, fitted to relative errors and not led astray by outliers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from calibrate.dataset import Sample
from sim.core.arrays import Bools, Float64
from sim.latency.profile_format import Term
from sim.latency.profile_terms import QUANTITIES

# Residuals beyond this many standard deviations pull no harder than at it (Huber).
_HUBER = 2.5
_NUM_ROUNDS = 5
# Standard deviations of a normal distribution in one median absolute deviation.
_SIGMAS_PER_MAD = 1.4826
_SMALLEST_SIGMA = 1e-6
_NUM_KNEES = 20
# A term that never makes up more of a step than this is left out.
_NEGLIGIBLE = 5e-3
_OUTLIER_SIGMAS = 4 * _HUBER


class TermKey(NamedTuple):
    """Which term: a quantity's name, and the knee it counts from."""

    name: str
    knee: float = 0.0


def values_of(name: str, samples: Sequence[Sample]) -> Float64:
    """A quantity of every sample; shape [num_samples]."""
    read = QUANTITIES[name].read
    return np.array([read(sample.step, sample.graph) for sample in samples], dtype=np.float64)


def fit_terms(
    samples: Sequence[Sample],
    target_ns: Float64,
    names: Sequence[str],
    *,
    knee: str = "",
    least_ns: float = 1.0,
) -> tuple[Term, ...]:
    """Fit coefficients of at least 0 that make the relative residuals small.

    The weights are 1 / predicted rather than 1 / measured, found by iteration: dividing by what
    was measured favours what was measured too short.

    Args:
        samples: what ran.
        target_ns: how long it took; shape [num_samples].
        names: quantities to make terms of.
        knee: the quantity that may also count from a knee on; its knees are spread over its range.
        least_ns: times are taken as at least this long when errors are weighed.
    """
    keys = [TermKey(name) for name in names]
    columns = {name: values_of(name, samples) for name in names}
    if knee:
        keys += [TermKey(knee, value) for value in _knees(columns[knee])]
    keys, matrix = _distinct(keys, columns)
    coefficients = _fit(matrix, target_ns, least_ns)
    predicted = np.maximum(matrix @ coefficients, least_ns)
    shares = (matrix * coefficients / predicted[:, None]).max(axis=0)
    kept = np.flatnonzero(shares > _NEGLIGIBLE)
    if not len(kept):
        return (Term(term="constant", ns=0.0),)
    coefficients = _fit(matrix[:, kept], target_ns, least_ns)
    return tuple(
        Term(term=keys[index].name, knee=keys[index].knee, ns=rounded(ns))
        for index, ns in zip(kept, coefficients, strict=True)
        if ns > 0
    )


def evaluate(terms: Sequence[Term], samples: Sequence[Sample]) -> Float64:
    """What the terms give for each sample; shape [num_samples]."""
    total = np.zeros(len(samples))
    for term in terms:
        values = values_of(term.term, samples)
        total += term.ns * np.maximum(values - term.knee, 0)
    return total


def huber_weights(residuals: Float64) -> Float64:
    """1 within the bulk of the residuals, falling as 1 / distance beyond it."""
    far = np.abs(residuals) / (_HUBER * _sigma(residuals))
    return 1 / np.maximum(far, 1)


def are_outliers(residuals: Float64) -> Bools:
    """Which residuals are so far out that they have lost three quarters of their pull or more."""
    return np.abs(residuals) > _OUTLIER_SIGMAS * _sigma(residuals)


def rounded(value: float) -> float:
    """Nine digits: far more than are known, and no noise of the arithmetic in the file."""
    return float(f"{value:.9g}")


def _sigma(residuals: Float64) -> float:
    return max(float(np.median(np.abs(residuals))) * _SIGMAS_PER_MAD, _SMALLEST_SIGMA)


def _knees(values: Float64) -> list[float]:
    """Possible knees, evenly spread over the logarithm of the range, its ends left out."""
    low, high = max(values.min(), 1.0), values.max()
    if high < 2 * low:
        return []
    spread = np.geomspace(low, high, _NUM_KNEES + 2)[1:-1]
    return sorted({float(value) for value in np.rint(spread)})


def _distinct(keys: list[TermKey], columns: dict[str, Float64]) -> tuple[list[TermKey], Float64]:
    """Drop terms that are always 0, or the same as one before up to a factor."""
    kept: list[TermKey] = []
    matrix: list[Float64] = []
    directions: list[Float64] = []
    for key in keys:
        column = np.maximum(columns[key.name] - key.knee, 0)
        length = float(np.linalg.norm(column))
        if not length:
            continue
        direction = column / length
        if all(np.abs(direction - other).max() > 1e-9 for other in directions):
            kept.append(key)
            matrix.append(column)
            directions.append(direction)
    return kept, np.stack(matrix, axis=1)


def _fit(matrix: Float64, target_ns: Float64, least_ns: float) -> Float64:
    scale = np.maximum(target_ns, least_ns)
    weights = np.ones(len(target_ns))
    coefficients = np.zeros(matrix.shape[1])
    for _ in range(_NUM_ROUNDS):
        coefficients = _weighted(matrix, target_ns, np.sqrt(weights) / scale)
        predicted = matrix @ coefficients
        scale = np.maximum(predicted, least_ns)
        weights = huber_weights((target_ns - predicted) / scale)
    return coefficients


def _weighted(matrix: Float64, target_ns: Float64, weights: Float64) -> Float64:
    """Weighted least squares with coefficients of at least 0."""
    columns = matrix * weights[:, None]
    lengths = np.linalg.norm(columns, axis=0)
    # Tall and thin: the triangle of its QR decomposition says the same with few rows.
    stacked = np.column_stack([columns / lengths, target_ns * weights])
    triangle: Float64 = np.asarray(np.linalg.qr(stacked, mode="r"))
    solution, _ = nnls(triangle[:, :-1], triangle[:, -1], maxiter=100 * len(lengths))
    coefficients: Float64 = solution / lengths
    return coefficients
