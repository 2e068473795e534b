"""Equations are solved in few trials, for unknowns of at least 0, in spite of outliers."""

import numpy as np
import pytest

from calibrate.measured.equations import SolverTrial, huber_weights, objective, solve, step_to_root
from calibrate.measured.uncertainty import covariance

RNG = np.random.default_rng(7)
PARTS = RNG.uniform(0.2, 1.5, (80, 2))
MEASURED = 1 + PARTS @ np.array([0.4, 1.3])


def stretched(x, power=1.2):
    """Times that grow faster than the step times, because waits get longer too."""
    steps = (1 + PARTS @ x) / MEASURED
    return SolverTrial(steps**power - 1, PARTS / MEASURED[:, None])


def counted(function):
    calls = []

    def trial(x):
        calls.append(x.copy())
        return function(x)

    return trial, calls


@pytest.mark.parametrize("start", [[0.0, 0.0], [2.0, 0.5]])
def test_solve_finds_two_unknowns_whose_effect_is_not_quite_known(start):
    """From starts on both sides, in about twelve trials."""
    trial, calls = counted(stretched)
    solution = solve(trial, np.array(start))
    assert solution.unknowns == pytest.approx([0.4, 1.3], abs=0.01)
    assert objective(solution.residuals) < 1e-3
    assert len(calls) <= 16
    assert solution.slopes == pytest.approx(1.2 * solution.instruments, rel=0.1)


def test_solve_passes_over_outliers():
    """A tenth of the requests take twice as long, whatever the unknowns."""
    measured = np.ones(100)
    measured[::10] = 2

    def trial(x):
        return SolverTrial((1 + x[0]) / 1.2 / measured - 1, 1 / measured[:, None])

    assert solve(trial, np.array([0.0])).unknowns[0] == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("start", [0.0, 0.5])
def test_solve_does_not_go_below_zero(start):
    """If only a negative time would solve the equations, it is 0; slopes are one-sided there."""
    trial, calls = counted(lambda x: SolverTrial(np.full(20, 0.3 + x[0]), np.ones((20, 1))))
    solution = solve(trial, np.array([start]))
    assert solution.unknowns.tolist() == [0]
    assert solution.slopes == pytest.approx(np.ones((20, 1)))
    assert min(float(x[0]) for x in calls) == 0


def test_solve_keeps_one_unknown_at_zero_and_finds_the_other():
    """The bound of one unknown does not hold back the other."""
    measured = 1 + PARTS @ np.array([-0.3, 1.3])

    def trial(x):
        return SolverTrial((1 + PARTS @ x) / measured - 1, PARTS / measured[:, None])

    solution = solve(trial, np.array([0.2, 0.2]))
    assert solution.unknowns[0] == 0
    assert 0.5 < solution.unknowns[1] < 1.3
    residuals, instruments = trial(solution.unknowns)
    pulls = instruments * (huber_weights(residuals) * residuals)[:, None]
    assert abs(pulls[:, 1].sum()) < 0.01 < pulls[:, 0].sum()


def test_solve_ends_although_trials_are_rough():
    """Some requests jump from trial to trial, so no trial fits exactly."""
    noise = np.random.default_rng(1)

    def rough(x):
        residuals, instruments = stretched(x)
        return SolverTrial(residuals + 0.01 * noise.standard_normal(80), instruments)

    trial, calls = counted(rough)
    solution = solve(trial, np.array([0.0, 0.0]))
    assert 1 + 0.85 * solution.unknowns.sum() == pytest.approx(1 + 0.85 * 1.7, rel=0.02)
    assert len(calls) <= 16


def test_step_leads_to_where_equations_hold():
    """Small residuals have equal weights, as in the usual equations of instruments."""
    residuals = 0.02 * RNG.standard_normal(80)
    residuals = np.clip(residuals, -0.04, 0.04)
    slopes = 1.1 * PARTS
    step = step_to_root(SolverTrial(residuals, PARTS), slopes, np.ones(2))
    assert PARTS.T @ (residuals + slopes @ step) == pytest.approx(np.zeros(2), abs=1e-6)


def test_objective_is_the_root_mean_square_of_small_residuals():
    """Beyond the bound it grows linearly."""
    assert objective(np.array([0.01, -0.03])) == pytest.approx(np.sqrt(5e-4))
    assert objective(np.array([1.0])) < 0.4


@pytest.mark.parametrize("span_s", [5.0, 500.0])
def test_covariance_is_right_for_requests_that_share_steps(span_s):
    """The spread of estimates from a hundred made-up runs, whether requests overlap or not."""
    rng = np.random.default_rng(3)
    begin = np.sort(rng.uniform(0, span_s, 60))
    end = begin + rng.uniform(4, 8, 60)
    edges = np.arange(0, span_s + 10, 0.05)
    row = np.searchsorted(edges, [begin, end])
    ones = np.ones((60, 1))
    found, said = [], []
    for _ in range(100):
        walk = np.cumsum(0.01 * rng.standard_normal(len(edges)))
        residuals = (walk[row[1]] - walk[row[0]]) / (end - begin)
        solution = solve(lambda x, r=residuals: SolverTrial(r + x[0] - 1, ones), np.ones(1))
        found.append(solution.unknowns[0])
        said.append(np.sqrt(covariance(solution, begin, end)[0, 0]))
    assert 0.6 < np.mean(said) / np.std(found) < 1.6
