"""Errors of fits that lack a whole log, or the largest measured values of a quantity.

Folds leave out compositions that have neighbours among the others, so their errors say how well a
fit interpolates. These errors say how it does on a run that it has not seen, and beyond its range.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from calibrate.dataset import Sample
from calibrate.errors_by_mode import errors_of
from calibrate.fit_mode import device_times, fit_model, predict
from calibrate.fit_terms import values_of
from calibrate.folds import num_compositions, part
from sim.core.arrays import Bools
from sim.latency.profile.format import MODE_NAMES, LeftOut
from sim.latency.profile.quantities import MODE_TERMS, QUANTITIES


def left_out_errors(
    samples: Sequence[Sample], files: Sequence[str], graph_sizes: Sequence[int], *, seed: int
) -> Iterator[LeftOut]:
    """The errors of one mode, for each log and each quantity whose range the profile keeps.

    Args:
        samples: what the device model of the mode is fitted to.
        files: names of the logs.
        graph_sizes: rows of the decode graphs.
        seed: of the folds that choose the correction table.
    """
    mode = samples[0].step.mode
    for what, mask in _parts(samples, files):
        known, unknown = part(samples, ~mask), part(samples, mask)
        if unknown and num_compositions(known) >= len(MODE_TERMS[mode].device):
            predicted_ns = predict(fit_model(known, seed), unknown, graph_sizes)
            errors = errors_of(device_times(unknown), predicted_ns)
            yield LeftOut(mode=MODE_NAMES[mode], what=what, errors=errors)


def _parts(samples: Sequence[Sample], files: Sequence[str]) -> Iterator[tuple[str, Bools]]:
    logs = np.array([sample.log for sample in samples])
    for log, file in enumerate(files):
        yield file, logs == log
    for name in MODE_TERMS[samples[0].step.mode].ranges:
        values = values_of(name, samples)
        limit = values.max() / 2
        yield f"{QUANTITIES[name].label} above {limit:,.0f}", values > limit
