"""Small robust least squares whose every residual costs a simulation: as few as it can do with.

Gauss-Newton: derivatives by differences, kept up with Broyden's update from step to step and
measured anew before the end. All unknowns are at least 0 and near 1 in size.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

Float64 = NDArray[np.float64]
Residuals = Callable[[Float64], Float64]

# Residuals beyond this pull no harder than at it (Huber).
_HUBER = 0.05
# Wide enough that what a simulation decides otherwise here and there does not show.
_WIDTH = 0.03
_SMALLEST_STEP = 5e-4
_SHARES = (1.0, 0.5, 0.25)
_MOST_TRIALS = 25
_NUM_ROUNDS = 30
_SETTLED = 1e-9


@dataclass(frozen=True, slots=True)
class Solution:
    """Where the objective is smallest; `jacobian` has shape [num_residuals, num_unknowns]."""

    unknowns: Float64
    residuals: Float64
    jacobian: Float64
    num_trials: int


def objective(residuals: Float64) -> float:
    """Root mean square of the residuals, those beyond a bound counted as if they grew slower."""
    size = np.abs(residuals)
    square = np.where(size <= _HUBER, size**2, _HUBER * (2 * size - _HUBER))
    return float(np.sqrt(square.mean()))


def minimise(residuals_of: Residuals, start: Float64) -> Solution:
    """Find the unknowns with the smallest objective; the same input takes the same way.

    Args:
        residuals_of: a trial; called 25 times at most, and a few for the last derivatives.
        start: unknowns to begin with, at least 0.
    """
    counted = _Counted(residuals_of)
    best, residuals = start, counted(start)
    jacobian, is_fresh = _differences(counted, best, residuals), True
    while counted.num_trials < _MOST_TRIALS:
        step = robust_step(residuals, jacobian, best)
        found = None
        if np.abs(step).max() >= _SMALLEST_STEP:
            found = _better(counted, best, objective(residuals), step)
        if found is not None:
            trial, theirs = found
            jacobian = _updated(jacobian, trial - best, theirs - residuals)
            best, residuals, is_fresh = trial, theirs, False
        elif is_fresh:
            break
        else:
            jacobian, is_fresh = _differences(counted, best, residuals), True
    if not is_fresh:
        jacobian = _differences(counted, best, residuals)
    return Solution(best, residuals, jacobian, counted.num_trials)


def robust_step(residuals: Float64, jacobian: Float64, unknowns: Float64) -> Float64:
    """The step to the smallest objective if residuals changed linearly; leads nowhere below 0."""
    step = np.zeros(len(unknowns))
    for _ in range(_NUM_ROUNDS):
        size = np.abs(residuals + jacobian @ step)
        weight = np.sqrt(_HUBER / np.maximum(size, _HUBER))
        before = step
        bounds = (-unknowns - _SETTLED, np.inf)
        weighted = jacobian * weight[:, None], -residuals * weight
        step = np.maximum(lsq_linear(*weighted, bounds=bounds, method="bvls").x, -unknowns)
        if np.abs(step - before).max() < _SETTLED:
            break
    return step


def jackknife(solution: Solution, group: NDArray[np.int64]) -> Float64:
    """Covariance of the unknowns by leaving out one group of residuals after the other.

    Args:
        solution: what was found; the rest is linear in the unknowns.
        group: of each residual, from 0 on; at least two groups.
    """
    num_groups = int(group.max()) + 1
    left_out = np.array(list(_left_out(solution, group, num_groups)))
    apart = left_out - left_out.mean(axis=0)
    covariance: Float64 = apart.T @ apart * (num_groups - 1) / num_groups
    return covariance


def _left_out(solution: Solution, group: NDArray[np.int64], num_groups: int) -> Iterator[Float64]:
    for number in range(num_groups):
        kept = group != number
        residuals, jacobian = solution.residuals[kept], solution.jacobian[kept]
        yield solution.unknowns + robust_step(residuals, jacobian, solution.unknowns)


class _Counted:
    def __init__(self, residuals_of: Residuals) -> None:
        self._residuals_of = residuals_of
        self.num_trials = 0

    def __call__(self, unknowns: Float64) -> Float64:
        self.num_trials += 1
        return self._residuals_of(unknowns)


def _better(
    residuals_of: Residuals, unknowns: Float64, to_beat: float, step: Float64
) -> tuple[Float64, Float64] | None:
    for share in _SHARES:
        trial = np.maximum(unknowns + share * step, 0.0)
        residuals = residuals_of(trial)
        if objective(residuals) < to_beat:
            return trial, residuals
    return None


def _differences(residuals_of: Residuals, unknowns: Float64, residuals: Float64) -> Float64:
    columns = []
    for number in range(len(unknowns)):
        beside = unknowns.copy()
        beside[number] += _WIDTH
        columns.append((residuals_of(beside) - residuals) / _WIDTH)
    return np.column_stack(columns)


def _updated(jacobian: Float64, moved: Float64, changed: Float64) -> Float64:
    """Broyden's update; a step that is small against the differences says nothing new."""
    length = float(np.linalg.norm(moved))
    if length < _WIDTH / 2:
        return jacobian
    updated: Float64 = jacobian + np.outer(changed - jacobian @ moved, moved) / length**2
    return updated
