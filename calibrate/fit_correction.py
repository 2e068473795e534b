"""Fits the table of factors by which a profile corrects the sum of its terms.

Neighbouring factors are kept close to each other. Far from all measurements a factor is 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrate.dataset import Sample
from calibrate.fit_terms import huber_weights, rounded, values_of
from sim.core.arrays import Float64, Int64
from sim.latency.profile.format import Correction, CorrectionAxis

# A grid that was chosen for measuring has at most this many different values of a quantity.
_MOST_GRID_VALUES = 24
# With more values, the measurements come from a served run, and 12 of the values become knots.
_NUM_KNOTS_OF_RUN = 12
_KNOT_DIGITS = 3
_NUM_ROUNDS = 3
# A weak pull of all factors to 1. It decides only those without a measurement nearby.
_PULL_TO_ONE = 1e-4
_LEAST_FACTOR, _MOST_FACTOR = 0.1, 10.0


class Grid(NamedTuple):
    """Knots of the two axes."""

    quantities: tuple[str, str]
    first: Float64
    second: Float64

    @property
    def size(self) -> int:
        return len(self.first) * len(self.second)


def choose_grid(samples: Sequence[Sample], quantities: tuple[str, str]) -> Grid:
    """Knots at all measured values, or at 12 of many values, evenly spread on a log scale."""
    first, second = (_knots(values_of(name, samples)) for name in quantities)
    return Grid(quantities, first, second)


def fit_correction(
    grid: Grid,
    samples: Sequence[Sample],
    ratios: Float64,
    *,
    stiffness: float,
    weights: Float64 | None = None,
) -> Correction:
    """Fit factors to the ratios measured / predicted.

    Args:
        grid: the knots of the table.
        samples: what ran.
        ratios: measured over predicted by the terms; shape [num_samples].
        stiffness: weight of differences between neighbouring factors, against that of the samples.
        weights: of the samples; None: equal ones.
    """
    of_samples = np.ones(len(samples)) if weights is None else weights
    corners, shares = place(grid, samples)
    per_knot = of_samples.sum() / grid.size
    penalty = per_knot * (stiffness * _differences(grid) + _PULL_TO_ONE * np.eye(grid.size))
    weights = of_samples
    factors = np.ones(grid.size)
    for _ in range(_NUM_ROUNDS):
        factors = 1 + _solve(corners, shares, ratios - 1, weights, penalty)
        weights = of_samples * huber_weights(ratios - (factors[corners] * shares).sum(axis=1))
    table = np.clip(factors, _LEAST_FACTOR, _MOST_FACTOR)
    return Correction(
        axes=(_axis(grid.quantities[0], grid.first), _axis(grid.quantities[1], grid.second)),
        factors=tuple(
            tuple(rounded(factor) for factor in row)
            for row in table.reshape(len(grid.first), len(grid.second))
        ),
    )


def evaluate_correction(correction: Correction, grid: Grid, samples: Sequence[Sample]) -> Float64:
    """The table's factor for every sample; shape [num_samples]."""
    corners, shares = place(grid, samples)
    factors: Float64 = np.array(correction.factors).ravel()
    result: Float64 = (factors[corners] * shares).sum(axis=1)
    return result


def place(grid: Grid, samples: Sequence[Sample]) -> tuple[Int64, Float64]:
    """The four knots around each sample, and their weights; both of shape [num_samples, 4]."""
    low_a, high_a, share_a = _between(grid.first, values_of(grid.quantities[0], samples))
    low_b, high_b, share_b = _between(grid.second, values_of(grid.quantities[1], samples))
    width = len(grid.second)
    corners = np.stack([a * width + b for a in (low_a, high_a) for b in (low_b, high_b)], axis=1)
    shares = np.stack(
        [a * b for a in (1 - share_a, share_a) for b in (1 - share_b, share_b)], axis=1
    )
    return corners, shares


def _between(knots: Float64, values: Float64) -> tuple[Int64, Int64, Float64]:
    """The knots below and above each value, and the weight of the upper one.

    A value beyond the first or last knot counts as that knot.
    """
    if len(knots) == 1:
        zeros = np.zeros(len(values), dtype=np.int64)
        return zeros, zeros, np.zeros(len(values))
    clipped = np.clip(values, knots[0], knots[-1])
    low = np.clip(np.searchsorted(knots, clipped, side="right") - 1, 0, len(knots) - 2)
    share = (clipped - knots[low]) / (knots[low + 1] - knots[low])
    return low, low + 1, share


def _knots(values: Float64) -> Float64:
    distinct = np.unique(np.round(values, _KNOT_DIGITS))
    if len(distinct) <= _MOST_GRID_VALUES:
        return distinct
    smallest = distinct[distinct > 0][0]
    wanted = np.geomspace(smallest, distinct[-1], _NUM_KNOTS_OF_RUN)
    nearest = np.abs(distinct[None, :] - wanted[:, None]).argmin(axis=1)
    return np.unique(np.concatenate([distinct[:1], distinct[nearest]]))


def _differences(grid: Grid) -> Float64:
    """The matrix D for which f @ D @ f is the sum of squared differences of neighbours in f."""
    numbers = np.arange(grid.size).reshape(len(grid.first), len(grid.second))
    pairs = np.concatenate(
        [
            np.stack([numbers[:-1].ravel(), numbers[1:].ravel()], axis=1),
            np.stack([numbers[:, :-1].ravel(), numbers[:, 1:].ravel()], axis=1),
        ]
    )
    rows = np.zeros((len(pairs), grid.size))
    rows[np.arange(len(pairs)), pairs[:, 0]] = 1
    rows[np.arange(len(pairs)), pairs[:, 1]] = -1
    return rows.T @ rows


def _solve(
    corners: Int64, shares: Float64, target: Float64, weights: Float64, penalty: Float64
) -> Float64:
    size = len(penalty)
    right = np.bincount(
        corners.ravel(), (shares * (weights * target)[:, None]).ravel(), minlength=size
    )
    cells = corners[:, :, None] * size + corners[:, None, :]
    products = shares[:, :, None] * shares[:, None, :] * weights[:, None, None]
    gram = np.bincount(cells.ravel(), products.ravel(), minlength=size * size)
    solution = np.linalg.solve(gram.reshape(size, size) + penalty, right)
    return np.asarray(solution, dtype=np.float64)


def _axis(quantity: str, knots: Float64) -> CorrectionAxis:
    return CorrectionAxis(quantity=quantity, knots=tuple(knots.tolist()))
