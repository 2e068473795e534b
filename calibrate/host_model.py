"""Fits host time by mode and way of scheduling, as sums of quantities of a step."""

from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np

from calibrate.dataset import Sample
from calibrate.errors_by_mode import errors_of, predict_held_out
from calibrate.fit_terms import are_outliers, evaluate, fit_terms, rounded
from calibrate.folds import num_compositions
from sim.core.arrays import Float64
from sim.core.batch import ForwardMode
from sim.latency.profile.format import MODE_NAMES, HostModel, HostTerms, Scheduling, Term
from sim.latency.profile.terms import MODE_TERMS

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
                modes[MODE_NAMES[mode]] = _fit_mode(mode, known, num_folds=num_folds, seed=seed)
        if modes:
            models.append(HostModel(scheduling=scheduling, modes=modes))
    return tuple(models)


def _fit_mode(
    mode: ForwardMode, samples: Sequence[Sample], *, num_folds: int, seed: int
) -> HostTerms:
    def fit_and_predict(known: Sequence[Sample], unknown: Sequence[Sample]) -> Float64:
        return evaluate(_fit(mode, known), unknown)

    host_ns = _host_ns(samples)
    if num_compositions(samples) < 2:
        predicted = evaluate(_fit(mode, samples), samples)
    else:
        predicted = predict_held_out(samples, fit_and_predict, num_folds=num_folds, seed=seed)
    errors = errors_of(host_ns, predicted, least_ns=LEAST_HOST_NS)
    return HostTerms(terms=_fit(mode, samples), errors=errors)


def _fit(mode: ForwardMode, samples: Sequence[Sample]) -> tuple[Term, ...]:
    """Fit terms whose total over the samples equals the measured total, without outliers.

    Host times have a long upper tail: a robust fit predicts less than the mean, but the length of a
    run depends on the sum.
    """
    host_ns = _host_ns(samples)
    enough = num_compositions(samples) >= _FEWEST_FOR_TERMS
    names = MODE_TERMS[mode].host if enough else ("constant",)
    terms = fit_terms(samples, host_ns, names, least_ns=LEAST_HOST_NS)
    predicted = evaluate(terms, samples)
    residuals = (host_ns - predicted) / np.maximum(predicted, LEAST_HOST_NS)
    usual = ~are_outliers(residuals)
    total = predicted[usual].sum()
    scale = host_ns[usual].sum() / total if total else 1.0
    return tuple(term.model_copy(update={"ns": rounded(term.ns * scale)}) for term in terms)


def _host_ns(samples: Sequence[Sample]) -> Float64:
    return np.array([sample.host_ns for sample in samples], dtype=np.float64)
