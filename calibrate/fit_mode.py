"""Fits the device time of one mode: terms, and a correction."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibrate.dataset import Sample
from calibrate.errors_by_mode import errors_of, predict_held_out
from calibrate.fit_correction import choose_grid, evaluate_correction, fit_correction
from calibrate.fit_terms import evaluate, fit_terms, rounded, values_of
from calibrate.folds import composition_weights, held_out, num_compositions, part
from sim.core.arrays import Float64
from sim.core.batch import ForwardMode
from sim.latency.features import graph_rows
from sim.latency.profile.format import DeviceModel, Range, Term
from sim.latency.profile.model import ModeTime
from sim.latency.profile.quantities import MODE_TERMS

# How stiff a table is: with the first it follows every sample, with the last it is nearly flat.
_STIFFNESS = (0.01, 0.1, 1.0)
_INNER_FOLDS = 4
# A mode gets a table only if the table's errors are below this share of the errors without it, and
# only if it has at least this number of compositions of steps.
_WORTH_IT = 0.98
_FEWEST_FOR_TABLE = 24


class ModeFit(NamedTuple):
    """A fitted mode.

    Attributes:
        model: the part of the profile.
        held_out_ns: predictions by fits without the sample; shape [num_samples].
    """

    model: DeviceModel
    held_out_ns: Float64


def fit_mode(
    samples: Sequence[Sample], graph_sizes: Sequence[int], *, num_folds: int, seed: int
) -> ModeFit:
    """Fit all samples of one mode, and measure the errors of such a fit.

    For the errors the fit is repeated, with all its choices, without the samples it predicts.
    """

    def fit_and_predict(known: Sequence[Sample], unknown: Sequence[Sample]) -> Float64:
        return predict(fit_model(known, seed), unknown, graph_sizes)

    device_ns = device_times(samples)
    held_out_ns = predict_held_out(samples, fit_and_predict, num_folds=num_folds, seed=seed)
    model = fit_model(samples, seed)
    return ModeFit(
        model.model_copy(update={"errors": errors_of(device_ns, held_out_ns)}), held_out_ns
    )


def enough_for_knees(samples: Sequence[Sample]) -> bool:
    """Whether two compositions were measured for each term; fewer cannot tell knees from terms."""
    return num_compositions(samples) >= 2 * len(MODE_TERMS[samples[0].step.mode].device)


def predict(model: DeviceModel, samples: Sequence[Sample], graph_sizes: Sequence[int]) -> Float64:
    """The times that the simulator will predict for these samples; shape [num_samples]."""
    time = ModeTime(model)
    steps = (sample.step for sample in samples)
    return np.array(
        [max(time.at(step, graph_rows(step.num_decode_rows, graph_sizes)), 1.0) for step in steps]
    )


def fit_model(samples: Sequence[Sample], seed: int) -> DeviceModel:
    """Terms and table of one mode; its errors are all 0."""
    mode = samples[0].step.mode
    device_ns = device_times(samples)
    terms = _terms(mode, samples)
    correction = None
    table = _choose_table(mode, samples, seed)
    if table is not None:
        ratios = device_ns / np.maximum(evaluate(terms, samples), 1)
        grid = choose_grid(samples, table.axes)
        weights = composition_weights(samples)
        correction = fit_correction(
            grid, samples, ratios, stiffness=table.stiffness, weights=weights
        )
    return DeviceModel(
        range={name: _range(name, samples) for name in MODE_TERMS[mode].ranges},
        terms=terms,
        correction=correction,
        errors=errors_of(device_ns, device_ns),
    )


def _terms(mode: ForwardMode, samples: Sequence[Sample]) -> tuple[Term, ...]:
    allowed = MODE_TERMS[mode]
    return fit_terms(
        samples,
        device_times(samples),
        allowed.device,
        knee=allowed.knee if enough_for_knees(samples) else "",
        weights=composition_weights(samples),
    )


class _Table(NamedTuple):
    """The axes and the stiffness of a correction table."""

    axes: tuple[str, str]
    stiffness: float


def _choose_table(mode: ForwardMode, samples: Sequence[Sample], seed: int) -> _Table | None:
    """The table that predicts held-out samples best; None: no table does better than none."""
    if num_compositions(samples) < _FEWEST_FOR_TABLE:
        return None
    tables = [_Table(axes, stiffness) for axes in MODE_TERMS[mode].axes for stiffness in _STIFFNESS]
    wrong: dict[_Table | None, float] = dict.fromkeys((None, *tables), 0.0)
    weights = composition_weights(samples)
    # Another seed than that of the folds by which `fit_mode` measures errors.
    for mask in held_out(samples, _INNER_FOLDS, seed + 1):
        known, unknown = part(samples, ~mask), part(samples, mask)
        terms = _terms(mode, known)
        ratios = device_times(known) / np.maximum(evaluate(terms, known), 1)
        unknown_ratios = device_times(unknown) / np.maximum(evaluate(terms, unknown), 1)
        wrong[None] += _wrongness(unknown_ratios, np.ones(len(unknown)), weights[mask])
        for table in tables:
            grid = choose_grid(known, table.axes)
            correction = fit_correction(
                grid, known, ratios, stiffness=table.stiffness, weights=weights[~mask]
            )
            factors = evaluate_correction(correction, grid, unknown)
            wrong[table] += _wrongness(unknown_ratios, factors, weights[mask])
    best = min(tables, key=lambda table: wrong[table])
    return best if wrong[best] < _WORTH_IT * wrong[None] else None


def _wrongness(ratios: Float64, factors: Float64, weights: Float64) -> float:
    """The relative errors of a table's factors for terms, against measured ones."""
    return float((weights * np.abs(factors / ratios - 1)).sum())


def _range(name: str, samples: Sequence[Sample]) -> Range:
    values = values_of(name, samples)
    return Range(low=rounded(values.min()), high=rounded(values.max()))


def device_times(samples: Sequence[Sample]) -> Float64:
    """The measured device times in ns; shape [num_samples]."""
    return np.array([sample.device_ns for sample in samples])
