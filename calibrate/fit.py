"""From run logs to a latency profile."""

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
    """Fit every mode the dataset knows, and its host times. The same input, the same profile.

    Args:
        dataset: measured steps and points.
        name: how messages call the profile.
        label: what a reader should know about it, in a few words.
        num_folds: the errors are those of fits that each left out one such part.
        seed: draws the parts.

    Raises:
        InputError: too few different points of a mode, or a mode whose host time is unknown.
    """
    _check_enough(dataset.samples, num_folds)
    fits = {
        mode: fit_mode(samples, dataset.graph_sizes, num_folds=num_folds, seed=seed)
        for mode, samples in dataset.samples.items()
    }
    host = fit_host(dataset.samples, num_folds=num_folds, seed=seed)
    for mode in fits:
        if not any(MODE_NAMES[mode] in model.modes for model in host):
            raise InputError(f"{_files(dataset)}: no host times of {MODE_NAMES[mode]} steps")
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
        # Terms cannot be told apart by fewer points than twice their number, with a part left out.
        needed = max(2 * len(MODE_TERMS[mode].device), 2 * num_folds)
        found = num_compositions(of_mode)
        if found < needed:
            raise InputError(
                f"{MODE_NAMES[mode]}: {found} different points are too few to fit,"
                f" at least {needed} are needed"
            )


def _files(dataset: Dataset) -> str:
    return ", ".join(source.file for source in dataset.sources)
