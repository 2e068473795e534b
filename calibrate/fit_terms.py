"""Fits sums of terms with coefficients of at least 0, by relative errors, robust to outliers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from calibrate.dataset import Sample
from sim.core.arrays import Bools, Float64
from sim.latency.profile.format import Term
from sim.latency.profile.quantities import QUANTITIES

# Residuals beyond this many standard deviations get a smaller weight (Huber).
_HUBER = 2.5
_NUM_ROUNDS = 5
# Standard deviations of a normal distribution in one median absolute deviation.
_SIGMAS_PER_MAD = 1.4826
_SMALLEST_SIGMA = 1e-6
_NUM_KNEES = 20
# A term that is never more than this share of a step is left out.
_NEGLIGIBLE = 5e-3
_OUTLIER_SIGMAS = 4 * _HUBER


class TermKey(NamedTuple):
    """A term: a quantity's name, and the knee above which it counts."""

    name: str
    knee: float = 0.0


def values_of(name: str, samples: Sequence[Sample]) -> Float64:
    """The values of a quantity; shape [num_samples]."""
    read = QUANTITIES[name].read
    return np.array([read(sample.step, sample.graph) for sample in samples], dtype=np.float64)


def fit_terms(
    samples: Sequence[Sample],
    target_ns: Float64,
    names: Sequence[str],
    *,
    knee: str = "",
    least_ns: float = 1.0,
    weights: Float64 | None = None,
) -> tuple[Term, ...]:
    """Fit coefficients of at least 0 that make the relative residuals small.

    Residuals are relative to the predicted times, so the fit is repeated with the times that it
    predicts. If they were relative to the measured times, times that were measured too short would
    count most.

    Args:
        samples: what ran.
        target_ns: measured times; shape [num_samples].
        names: quantities that may be terms.
        knee: the quantity that may also be a term with a knee; knees over its whole range are
            tried.
        least_ns: smallest divisor of a relative residual.
        weights: of the samples; None: equal ones.
    """
    weights = np.ones(len(samples)) if weights is None else weights
    keys = [TermKey(name) for name in names]
    columns = {name: values_of(name, samples) for name in names}
    if knee:
        keys += [TermKey(knee, value) for value in _knees(columns[knee])]
    keys, matrix = _distinct(keys, columns)
    coefficients = _fit(matrix, target_ns, least_ns, weights)
    predicted = np.maximum(matrix @ coefficients, least_ns)
    shares = (matrix * coefficients / predicted[:, None]).max(axis=0)
    kept = np.flatnonzero(shares > _NEGLIGIBLE)
    if not len(kept):
        return (Term(term="constant", ns=0.0),)
    coefficients = _fit(matrix[:, kept], target_ns, least_ns, weights)
    return tuple(
        Term(term=keys[index].name, knee=keys[index].knee, ns=rounded(ns))
        for index, ns in zip(kept, coefficients, strict=True)
        if ns > 0
    )


def evaluate(terms: Sequence[Term], samples: Sequence[Sample]) -> Float64:
    """The sum of the terms for each sample; shape [num_samples]."""
    total = np.zeros(len(samples))
    for term in terms:
        values = values_of(term.term, samples)
        total += term.ns * np.maximum(values - term.knee, 0)
    return total


def huber_weights(residuals: Float64) -> Float64:
    """Huber's weights: 1 for most residuals, and falling as 1 / size for larger ones."""
    far = np.abs(residuals) / (_HUBER * _sigma(residuals))
    return 1 / np.maximum(far, 1)


def are_outliers(residuals: Float64) -> Bools:
    """Whether each residual is so large that its weight is a quarter or less."""
    return np.abs(residuals) > _OUTLIER_SIGMAS * _sigma(residuals)


def rounded(value: float) -> float:
    """Rounded to nine digits: more than are certain, but without the noise of the arithmetic."""
    return float(f"{value:.9g}")


def _sigma(residuals: Float64) -> float:
    return max(float(np.median(np.abs(residuals))) * _SIGMAS_PER_MAD, _SMALLEST_SIGMA)


def _knees(values: Float64) -> list[float]:
    """Knees to try, evenly spread over the logarithm of the range, without its ends."""
    low, high = max(values.min(), 1.0), values.max()
    if high < 2 * low:
        return []
    spread = np.geomspace(low, high, _NUM_KNEES + 2)[1:-1]
    return sorted({float(value) for value in np.rint(spread)})


def _distinct(keys: list[TermKey], columns: dict[str, Float64]) -> tuple[list[TermKey], Float64]:
    """Drop terms that are always 0, or proportional to an earlier one."""
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


def _fit(matrix: Float64, target_ns: Float64, least_ns: float, of_samples: Float64) -> Float64:
    scale = np.maximum(target_ns, least_ns)
    weights = of_samples
    coefficients = np.zeros(matrix.shape[1])
    for _ in range(_NUM_ROUNDS):
        coefficients = _weighted(matrix, target_ns, np.sqrt(weights) / scale)
        predicted = matrix @ coefficients
        scale = np.maximum(predicted, least_ns)
        weights = of_samples * huber_weights((target_ns - predicted) / scale)
    return coefficients


def _weighted(matrix: Float64, target_ns: Float64, weights: Float64) -> Float64:
    """Weighted least squares with coefficients of at least 0."""
    columns = matrix * weights[:, None]
    lengths = np.linalg.norm(columns, axis=0)
    # The matrix has many rows: the triangle of its QR decomposition has the same solution.
    stacked = np.column_stack([columns / lengths, target_ns * weights])
    triangle: Float64 = np.asarray(np.linalg.qr(stacked, mode="r"))
    solution, _ = nnls(triangle[:, :-1], triangle[:, -1], maxiter=100 * len(lengths))
    coefficients: Float64 = solution / lengths
    return coefficients
