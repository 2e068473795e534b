"""Fits a latency profile to the samples of run logs."""

from collections.abc import Mapping, Sequence

from calibrate.dataset import Dataset, Sample
from calibrate.errors_by_mode import decode_spread
from calibrate.fit_mode import fit_mode
from calibrate.folds import num_compositions
from calibrate.host_model import fit_host
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.profile.format import MODE_NAMES, LatencyProfile
from sim.latency.profile.terms import MODE_TERMS


def fit_profile(
    dataset: Dataset, *, name: str, label: str = "", num_folds: int = 5, seed: int = 0
) -> LatencyProfile:
    """Fit every mode of the dataset, and host times. Equal input gives an equal profile.

    Args:
        dataset: measured steps and points.
        name: the profile's name in messages.
        label: a short description of it.
        num_folds: the samples are divided into this many parts. The errors on each part are those
            of a fit without this part.
        seed: for the random division into parts.

    Raises:
        InputError: a mode has too few different points, or its host time is not known.
    """
    _check_enough(dataset.samples, num_folds)
    fits = {
        mode: fit_mode(samples, dataset.graph_sizes, num_folds=num_folds, seed=seed)
        for mode, samples in dataset.samples.items()
    }
    host = fit_host(dataset.samples, num_folds=num_folds, seed=seed)
    for mode in fits:
        if not any(MODE_NAMES[mode] in model.modes for model in host):
            files = ", ".join(source.file for source in dataset.sources)
            raise InputError(f"{files}: no host times of {MODE_NAMES[mode]} steps")
    decodes = dataset.samples.get(ForwardMode.DECODE)
    return LatencyProfile(
        schema_version=1,
        name=name,
        label=label,
        fingerprint=dict(dataset.fingerprint),
        model=str(dataset.fingerprint.get("model", "")),
        created_from=dataset.sources,
        graph_sizes=dataset.graph_sizes,
        modes={MODE_NAMES[mode]: fit.model for mode, fit in fits.items()},
        host=host,
        decode_spread=(
            decode_spread(decodes, fits[ForwardMode.DECODE].held_out_ns) if decodes else None
        ),
    )


def _check_enough(samples: Mapping[ForwardMode, Sequence[Sample]], num_folds: int) -> None:
    for mode, of_mode in samples.items():
        # Twice as many points as terms, so that the terms can be told apart; two for each part.
        needed = max(2 * len(MODE_TERMS[mode].device), 2 * num_folds)
        found = num_compositions(of_mode)
        if found < needed:
            raise InputError(
                f"{MODE_NAMES[mode]}: {found} different points are too few to fit,"
                f" at least {needed} are needed"
            )
