"""Fits host times and launch times by mode, as sums of quantities of a step."""

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import numpy as np

from calibrate.dataset import Sample
from calibrate.errors_by_mode import errors_of, predict_held_out
from calibrate.fit_terms import are_outliers, evaluate, fit_terms, rounded
from calibrate.folds import num_compositions
from sim.core.arrays import Float64
from sim.core.batch import ForwardMode
from sim.latency.profile.format import (
    MODE_NAMES,
    Errors,
    FittedTerms,
    HostModel,
    ModeName,
    Scheduling,
    Term,
)
from sim.latency.profile.quantities import MODE_TERMS

# The times of samples; shape [num_samples].
Times = Callable[[Sequence[Sample]], Float64]

# Shorter times are mostly noise of clocks and interrupts.
LEAST_HOST_NS = 1_000.0
# With fewer compositions only a constant is fitted.
_FEWEST_FOR_TERMS = 12


def fit_host(
    samples: Mapping[ForwardMode, Sequence[Sample]], *, num_folds: int, seed: int
) -> tuple[HostModel, ...]:
    """Fit one model for each way of scheduling among the samples.

    Steps that were measured one by one, without a scheduler, get a model "not measured". Its host
    time is a sum of measured parts. It is used only for modes that no run measured.
    """
    models = []
    schedulings: tuple[Scheduling, ...] = get_args(Scheduling)
    for scheduling in schedulings:
        modes = {}
        for mode, all_of_mode in samples.items():
            known = [s for s in all_of_mode if s.scheduling == scheduling and s.host_ns is not None]
            if known:
                names = MODE_TERMS[mode].host
                terms, errors = _fit_mode(known, _host_ns, names, num_folds=num_folds, seed=seed)
                modes[MODE_NAMES[mode]] = FittedTerms(terms=terms, errors=errors)
        if modes:
            models.append(HostModel(scheduling=scheduling, modes=modes))
    return tuple(models)


def fit_launch(
    samples: Mapping[ForwardMode, Sequence[Sample]], *, num_folds: int, seed: int
) -> dict[ModeName, FittedTerms]:
    """Fit the launch times of the eager steps of each mode that has any.

    Steps of runs go before steps that were measured one by one, whose launches are undisturbed.
    """
    found: dict[ModeName, FittedTerms] = {}
    for mode, all_of_mode in samples.items():
        eager = [sample for sample in all_of_mode if sample.launch_ns is not None]
        known = [sample for sample in eager if sample.scheduling != "not measured"] or eager
        if known:
            names = MODE_TERMS[mode].launch
            terms, errors = _fit_mode(known, _launch_ns, names, num_folds=num_folds, seed=seed)
            found[MODE_NAMES[mode]] = FittedTerms(terms=terms, errors=errors)
    return found


def _fit_mode(
    samples: Sequence[Sample], times: Times, names: Sequence[str], *, num_folds: int, seed: int
) -> tuple[tuple[Term, ...], Errors]:
    """Terms of these times, and the errors of such a fit on samples that it did not see."""

    def fit_and_predict(known: Sequence[Sample], unknown: Sequence[Sample]) -> Float64:
        return evaluate(_fit(known, times(known), names), unknown)

    terms = _fit(samples, times(samples), names)
    if num_compositions(samples) < 2:
        predicted = evaluate(terms, samples)
    else:
        predicted = predict_held_out(samples, fit_and_predict, num_folds=num_folds, seed=seed)
    return terms, errors_of(times(samples), predicted, least_ns=LEAST_HOST_NS)


def _fit(samples: Sequence[Sample], times_ns: Float64, names: Sequence[str]) -> tuple[Term, ...]:
    """Fit terms whose total over the samples equals the measured total, without outliers.

    Host times have a long upper tail: a robust fit predicts less than the mean, but the length of a
    run depends on the sum.
    """
    enough = num_compositions(samples) >= _FEWEST_FOR_TERMS
    terms = fit_terms(samples, times_ns, names if enough else ("constant",), least_ns=LEAST_HOST_NS)
    predicted = evaluate(terms, samples)
    residuals = (times_ns - predicted) / np.maximum(predicted, LEAST_HOST_NS)
    usual = ~are_outliers(residuals)
    total = predicted[usual].sum()
    scale = times_ns[usual].sum() / total if total else 1.0
    return tuple(term.model_copy(update={"ns": rounded(term.ns * scale)}) for term in terms)


def _host_ns(samples: Sequence[Sample]) -> Float64:
    return np.array([sample.host_ns for sample in samples], dtype=np.float64)


def _launch_ns(samples: Sequence[Sample]) -> Float64:
    return np.array([sample.launch_ns for sample in samples], dtype=np.float64)
