"""How sure fitted amounts are, and which of them the measured runs do not determine.

The slopes of the residuals say how far amounts can move together without making the residuals
larger. Requests that arrive together share steps, so their residuals are not independent: blocks of
requests are.
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from calibrate.coefficients.minimise import effects
from calibrate.coefficients.stamps import Rows
from calibrate.measured.equations import huber_weights
from sim.core.arrays import Bools, Float64

_LEVEL = 0.95
# A simulation is no closer to a server than this, in any stretch of time: of each kind of time.
_FLOOR = np.array([0.03, 0.01, 0.03, 0.01])
# An amount is determined if its interval changes the times of requests by less than this, or if its
# interval does not contain the value that it would be held at.
_MAX_EFFECT = 0.05
# If the runs determine only the sum of several amounts, these are unsure alike, within this factor.
_ALIKE = 3.0
# Directions with less curvature than this share of the mean are not determined at all.
_LEAST_CURVATURE = 1e-6


class Certainty(NamedTuple):
    """How sure each amount is; arrays of one length.

    Attributes:
        half_width: half the width of its interval.
        unsure: by how much the times of requests change over that half, as a share.
        is_determined: whether the runs determine it.
    """

    half_width: Float64
    unsure: Float64
    is_determined: Bools

    def least_determined(self) -> int | None:
        """The last of the amounts that are about as unsure as the most unsure one.

        None: all are determined.
        """
        if self.is_determined.all():
            return None
        most = self.unsure[~self.is_determined].max()
        return int(np.flatnonzero(self.unsure >= most / _ALIKE)[-1])


def certainty(
    amounts: Float64, held: Float64, residuals: Float64, slopes: Float64, rows: Rows
) -> Certainty:
    """Intervals in which 19 of 20 such fits would have the amounts.

    Args:
        amounts: as fitted.
        held: the amounts that they would be held at.
        residuals: with these amounts.
        slopes: shape [num_residuals, num_amounts].
        rows: what belongs to each residual.
    """
    weight = rows.weight(residuals) * huber_weights(residuals)
    scores = _by_block(slopes * (weight * residuals)[:, None], rows)
    floor = _by_block(slopes * (weight * _FLOOR[rows.kind])[:, None], rows)
    num_blocks, num_amounts = len(scores), len(amounts)
    freedom = max(1, num_blocks - num_amounts)
    spread = (scores.T @ scores + floor.T @ floor) * num_blocks / freedom
    inverse = _inverse(slopes.T @ (weight[:, None] * slopes))
    deviation = np.sqrt(np.diag(inverse @ spread @ inverse))
    half_width = float(student.ppf((1 + _LEVEL) / 2, freedom)) * deviation
    effect = effects(slopes, weight)
    half_width[effect == 0] = np.inf
    unsure = np.where(effect == 0, np.inf, np.where(effect == 0, 0.0, half_width) * effect)
    is_determined = (unsure <= _MAX_EFFECT) | (half_width <= np.abs(amounts - held))
    return Certainty(half_width, unsure, is_determined)


def _by_block(values: Float64, rows: Rows) -> Float64:
    sums = np.zeros((int(rows.block.max()) + 1, values.shape[1]))
    np.add.at(sums, rows.block, values)
    return sums


def _inverse(curvature: Float64) -> Float64:
    """The inverse, in which a direction without curvature is very wide."""
    scale = np.sqrt(np.diag(curvature))
    scale[scale == 0] = 1.0
    values, vectors = np.linalg.eigh(curvature / np.outer(scale, scale))
    values = np.maximum(values, _LEAST_CURVATURE)
    inverse: Float64 = (vectors / values) @ vectors.T / np.outer(scale, scale)
    return inverse
