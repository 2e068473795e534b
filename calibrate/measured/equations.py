"""Solves for unknowns in as few trials as possible, as each trial costs a simulation.

The residuals are not smooth functions of the unknowns: with a little more host time, a simulation
decides some steps differently, and a request's time jumps. So their sum of squares is not
minimised. Instead, unknowns are sought for which the residuals are uncorrelated with instruments.
An instrument is the effect that an unknown would have on each residual if all decisions stayed the
same; it is known. These equations average over all residuals. The real effects are learned from
trial to trial (Broyden's update). All unknowns are at least 0 and of the order of 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Float64

# Residuals beyond this get a smaller weight (Huber).
_HUBER = 0.05
# The search ends when no unknown would move further than this.
_NEAR = 5e-4
_MOST_STEPS = 10
# Step width of difference quotients, large against the jumps of single requests.
_WIDTH = 0.2
_NUM_ROUNDS = 50
_SETTLED = 1e-9


class SolverTrial(NamedTuple):
    """The outcome of a trial with some values of the unknowns.

    Attributes:
        residuals: relative errors; shape [num_residuals].
        instruments: effect of each unknown on each residual if decisions stay the same; shape
            [num_residuals, num_unknowns].
    """

    residuals: Float64
    instruments: Float64


@dataclass(frozen=True, slots=True)
class Solution:
    """The values for which the equations hold.

    Attributes:
        unknowns: shape [num_unknowns].
        residuals, instruments: of the trial with these values.
        slopes: effect of each unknown on each residual, with changed decisions, measured around the
            solution; shape [num_residuals, num_unknowns].
    """

    unknowns: Float64
    residuals: Float64
    instruments: Float64
    slopes: Float64


def objective(residuals: Float64) -> float:
    """Root mean square of the residuals; large ones count linearly."""
    return float(np.sqrt(huber_squares(residuals).mean()))


def huber_squares(residuals: Float64) -> Float64:
    """Squares up to a bound, and linear in the residuals' size beyond it."""
    size = np.abs(residuals)
    squares: Float64 = np.where(size <= _HUBER, size**2, _HUBER * (2 * size - _HUBER))
    return squares


def huber_weights(residuals: Float64) -> Float64:
    """1 up to the bound, and falling as 1 / size beyond it."""
    weight: Float64 = _HUBER / np.maximum(np.abs(residuals), _HUBER)
    return weight


def solve(trial_of: Callable[[Float64], SolverTrial], start: Float64) -> Solution:
    """Find the unknowns. Equal input gives equal trials.

    Args:
        trial_of: makes a trial; called about eight times for one unknown, about twelve times for
            two.
        start: values to begin with, at least 0.
    """
    here, at = start, trial_of(start)
    slopes = at.instruments
    best: tuple[float, Float64, SolverTrial] | None = None
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


def step_to_root(trial: SolverTrial, slopes: Float64, unknowns: Float64) -> Float64:
    """The step that solves the equations if residuals are linear; no unknown gets below 0."""
    residuals, instruments = trial
    step = np.zeros(len(unknowns))
    for _ in range(_NUM_ROUNDS):
        weighted = instruments * huber_weights(residuals + slopes @ step)[:, None]
        before, step = step, _bounded(weighted.T @ slopes, -weighted.T @ residuals, -unknowns)
        if np.abs(step - before).max() < _SETTLED:
            break
    return step


def _bounded(matrix: Float64, right: Float64, lowest: Float64) -> Float64:
    """Solve for a step; unknowns that would fall below their bound are fixed there one by one."""
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


def _slopes_around(
    trial_of: Callable[[Float64], SolverTrial], here: Float64, at: SolverTrial
) -> Float64:
    columns = []
    for number in range(len(here)):
        above, below = here.copy(), here.copy()
        above[number] += _WIDTH
        below[number] = max(here[number] - _WIDTH, 0.0)
        low = at if below[number] == here[number] else trial_of(below)
        apart = trial_of(above).residuals - low.residuals
        columns.append(apart / (above[number] - below[number]))
    return np.column_stack(columns)
