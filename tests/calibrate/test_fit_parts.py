"""The parts of a fit: knots, tables, folds."""

import numpy as np
import pytest

from calibrate.dataset import Sample
from calibrate.fit_correction import choose_grid, evaluate_correction, fit_correction
from calibrate.folds import composition_weights, held_out, num_compositions
from sim.core.batch import ForwardMode
from sim.latency.features import StepFeatures
from sim.latency.profile.model import surface_of

AXES = ("decode_rows", "mean_context")


def decode_sample(rows, mean):
    step = StepFeatures(ForwardMode.DECODE, 0, 0, 0, rows, rows * mean, rows * mean)
    return Sample(step, 0, 1.0, None, "not measured", None)


def grid_samples():
    return [decode_sample(rows, mean) for rows in (1, 4, 16, 64) for mean in (10, 100, 1_000)]


def test_correction_passes_through_what_was_measured():
    """With little stiffness the table returns the measured ratios on its own knots."""
    samples = grid_samples()
    ratios = np.random.default_rng(0).uniform(0.8, 1.2, len(samples))
    grid = choose_grid(samples, AXES)
    table = fit_correction(grid, samples, ratios, stiffness=1e-9)
    assert evaluate_correction(table, grid, samples) == pytest.approx(ratios, rel=1e-3)


def test_correction_without_measurements_goes_on_as_beside_it():
    """A knot that was never measured gets about its neighbours' factor."""
    samples = grid_samples()
    grid = choose_grid(samples, AXES)
    known = samples[:-1]
    table = fit_correction(grid, known, np.full(len(known), 1.1), stiffness=0.1)
    assert table.factors[-1][-1] == pytest.approx(1.1, abs=0.01)


def test_correction_one_bad_ratio_bends_nothing():
    """One outlier among many measurements does not change a factor."""
    samples = grid_samples() * 20
    ratios = np.ones(len(samples)) + np.random.default_rng(0).normal(0, 0.01, len(samples))
    ratios[17] = 10.0
    table = fit_correction(choose_grid(samples, AXES), samples, ratios, stiffness=0.01)
    assert np.array(table.factors) == pytest.approx(1, abs=0.03)


def test_correction_fit_and_prediction_interpolate_alike():
    """The fit's interpolation is the simulator's: between knots, on them and beyond them."""
    samples = grid_samples()
    grid = choose_grid(samples, AXES)
    ratios = np.random.default_rng(1).uniform(0.8, 1.2, len(samples))
    table = fit_correction(grid, samples, ratios, stiffness=0.01)
    surface = surface_of(table)
    rng = np.random.default_rng(2)
    others = [decode_sample(int(r), int(m)) for r, m in rng.integers(1, 2_000, (50, 2))]
    expected = [
        surface.at(
            s.step.num_decode_rows, s.step.num_decode_context_tokens / s.step.num_decode_rows
        )
        for s in others + samples
    ]
    assert evaluate_correction(table, grid, others + samples) == pytest.approx(expected)


def test_grid_of_a_run_has_few_knots_from_end_to_end():
    """Hundreds of different contexts give a few knots."""
    samples = [decode_sample(4, mean) for mean in range(17, 3_000, 3)]
    grid = choose_grid(samples, AXES)
    assert grid.first.tolist() == [4]
    assert len(grid.second) <= 13
    assert (grid.second[0], grid.second[-1]) == (17, 2_999)


def test_folds_hold_everything_out_once_and_twins_together():
    """Samples of similar composition are in the same fold."""
    samples = [decode_sample(rows, mean) for rows in (1, 2, 3, 4) for mean in (500, 501, 900)]
    assert num_compositions(samples) == 8
    masks = list(held_out(samples, 3, seed=0))
    assert np.sum(masks, axis=0).tolist() == [1] * len(samples)
    for mask in masks:
        assert (mask[0::3] == mask[1::3]).all()
    # Too few for five folds of two: each composition is a fold.
    assert len(list(held_out(samples, 5, seed=0))) == 8
    assert composition_weights(samples).tolist() == [0.5, 0.5, 1] * 4
