"""Unknowns whose every trial costs a simulation: as few of them as it can do with.

Residuals are rough: a simulation with a little more host time decides otherwise here and there, and
a request's time jumps. So what is sought is not their smallest square, but where they are
uncorrelated with instruments: known sizes of what the unknowns do to each of them while decisions
stay the same. These equations average over all residuals. What the unknowns really do is learned
from trial to trial (Broyden's update). All unknowns are at least 0 and near 1 in size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Float64

# Residuals beyond this pull no harder than at it (Huber).
_HUBER = 0.05
_NEAR = 5e-4
_MOST_STEPS = 10
# How far differences reach: jumps must be small against what they show.
_WIDTH = 0.2
_NUM_ROUNDS = 50
_SETTLED = 1e-9


class Trial(NamedTuple):
    """What came of some values of the unknowns.

    Attributes:
        residuals: relative errors; shape [num_residuals].
        instruments: shape [num_residuals, num_unknowns].
    """

    residuals: Float64
    instruments: Float64


@dataclass(frozen=True, slots=True)
class Solution:
    """Where the equations hold.

    Attributes:
        unknowns: shape [num_unknowns].
        residuals, instruments: as in the trial.
        slopes: change of the residuals with the unknowns, decisions included; measured around the
            solution. Shape [num_residuals, num_unknowns].
    """

    unknowns: Float64
    residuals: Float64
    instruments: Float64
    slopes: Float64


def objective(residuals: Float64) -> float:
    """Root mean square of the residuals, those beyond a bound counted as if they grew slower."""
    size = np.abs(residuals)
    square = np.where(size <= _HUBER, size**2, _HUBER * (2 * size - _HUBER))
    return float(np.sqrt(square.mean()))


def weights(residuals: Float64) -> Float64:
    """1 within the bound, falling as 1 / distance beyond it."""
    weight: Float64 = _HUBER / np.maximum(np.abs(residuals), _HUBER)
    return weight


def solve(trial_of: Callable[[Float64], Trial], start: Float64) -> Solution:
    """Find the unknowns; the same input takes the same way.

    Args:
        trial_of: a trial; called about eight times with one unknown, a dozen with two.
        start: unknowns to begin with, at least 0.
    """
    here, at = start, trial_of(start)
    slopes = at.instruments
    best: tuple[float, Float64, Trial] | None = None
    for _ in range(_MOST_STEPS):
        step = step_to_root(at, slopes, here)
        size = float(np.abs(step).max())
        if best is None or size < best[0]:
            best = size, here, at
        if size < _NEAR:
            break
        there = here + step
        trial = trial_of(there)
        changed = trial.residuals - at.residuals
        slopes = slopes + np.outer(changed - slopes @ step, step) / float(step @ step)
        here, at = there, trial
    if best is None:
        raise ValueError("no step was allowed")
    _, here, at = best
    return Solution(here, at.residuals, at.instruments, _slopes_around(trial_of, here, at))


def step_to_root(trial: Trial, slopes: Float64, unknowns: Float64) -> Float64:
    """The step to where the equations hold if residuals change by their slopes; not below 0."""
    residuals, instruments = trial
    step = np.zeros(len(unknowns))
    for _ in range(_NUM_ROUNDS):
        weighted = instruments * weights(residuals + slopes @ step)[:, None]
        before, step = step, _bounded(weighted.T @ slopes, -weighted.T @ residuals, -unknowns)
        if np.abs(step - before).max() < _SETTLED:
            break
    return step


def _bounded(matrix: Float64, right: Float64, lowest: Float64) -> Float64:
    """Solve for a step; unknowns it would take below their bound stay there, one at a time."""
    step = np.zeros(len(right))
    free = np.ones(len(right), dtype=np.bool_)
    while free.any():
        rest = right[free] - matrix[np.ix_(free, ~free)] @ step[~free]
        step[free] = np.linalg.pinv(matrix[np.ix_(free, free)]) @ rest
        beyond = lowest - step
        worst = int(np.argmax(beyond))
        if beyond[worst] <= 0:
            break
        step[worst] = lowest[worst]
        free[worst] = False
    return step


def _slopes_around(trial_of: Callable[[Float64], Trial], here: Float64, at: Trial) -> Float64:
    columns = []
    for number in range(len(here)):
        above, below = here.copy(), here.copy()
        above[number] += _WIDTH
        below[number] = max(here[number] - _WIDTH, 0.0)
        low = at if below[number] == here[number] else trial_of(below)
        apart = trial_of(above).residuals - low.residuals
        columns.append(apart / (above[number] - below[number]))
    return np.column_stack(columns)
