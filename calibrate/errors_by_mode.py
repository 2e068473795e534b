"""Errors of predictions for held-out samples, and how far uneven decode contexts explain them."""

from collections.abc import Callable, Sequence

import numpy as np

from calibrate.dataset import Sample
from calibrate.fit_terms import are_outliers, rounded
from calibrate.folds import held_out, part
from sim.core.arrays import Float64
from sim.latency.profile.format import ContextSpread, Errors

# Fits the first samples and predicts the second ones; shape [number of the second].
FitAndPredict = Callable[[Sequence[Sample], Sequence[Sample]], Float64]

_DIGITS = 4


def predict_held_out(
    samples: Sequence[Sample], fit_and_predict: FitAndPredict, *, num_folds: int, seed: int
) -> Float64:
    """Predictions for all samples, each by a fit without that sample; shape [num_samples]."""
    predicted = np.zeros(len(samples))
    for mask in held_out(samples, num_folds, seed):
        predicted[mask] = fit_and_predict(part(samples, ~mask), part(samples, mask))
    return predicted


def errors_of(measured: Float64, predicted: Float64, *, least_ns: float = 1.0) -> Errors:
    """Errors in percent of the measured times; a time below `least_ns` counts as `least_ns`."""
    relative = (predicted - measured) / np.maximum(measured, least_ns)
    sizes_pct = 100 * np.abs(relative)
    p50, p95 = np.percentile(sizes_pct, [50, 95])
    total_pct = 100 * (predicted.sum() / max(measured.sum(), least_ns) - 1)
    return Errors(
        points=len(measured),
        mape_pct=_short(sizes_pct.mean()),
        p50_pct=_short(p50),
        p95_pct=_short(p95),
        max_pct=_short(sizes_pct.max()),
        total_pct=_short(total_pct),
        outliers=int(are_outliers(relative).sum()),
    )


def decode_spread(samples: Sequence[Sample], predicted: Float64) -> ContextSpread | None:
    """How far the ratio of the longest to the mean decode context explains the residuals.

    Returns:
        None if that cannot be told: fewer than three samples, or all ratios equal.
    """
    spreads, residuals = [], []
    for sample, predicted_ns in zip(samples, predicted, strict=True):
        if sample.max_decode_context is not None:
            mean = sample.step.num_decode_context_tokens / sample.step.num_decode_rows
            spreads.append(sample.max_decode_context / mean)
            residuals.append(sample.device_ns / predicted_ns - 1)
    if len(spreads) < 3 or not np.ptp(spreads) or not np.ptp(residuals):
        return None
    correlation = float(np.corrcoef(spreads, residuals)[0, 1])
    return ContextSpread(
        points=len(spreads),
        correlation=rounded(round(correlation, _DIGITS)),
        variance_pct=_short(100 * correlation**2),
    )


def _short(value: float) -> float:
    return round(float(value), _DIGITS)
