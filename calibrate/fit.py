"""Fits a latency profile to the samples of run logs."""

from collections.abc import Mapping, Sequence

from calibrate.dataset import Dataset, Sample
from calibrate.errors_by_mode import decode_spread
from calibrate.fit_mode import fit_mode
from calibrate.folds import num_compositions
from calibrate.host_model import fit_host, fit_launch
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.profile.format import MODE_NAMES, SCHEMA_VERSION, LatencyProfile
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
        mode: fit_mode(
            device_samples(samples, num_folds), dataset.graph_sizes, num_folds=num_folds, seed=seed
        )
        for mode, samples in dataset.samples.items()
    }
    host = fit_host(dataset.samples, num_folds=num_folds, seed=seed)
    for mode in fits:
        if not any(MODE_NAMES[mode] in model.modes for model in host):
            files = ", ".join(source.file for source in dataset.sources)
            raise InputError(f"{files}: no host times of {MODE_NAMES[mode]} steps")
    decodes = device_samples(dataset.samples.get(ForwardMode.DECODE, ()), num_folds)
    return LatencyProfile(
        schema_version=SCHEMA_VERSION,
        name=name,
        label=label,
        fingerprint=dict(dataset.fingerprint),
        model=str(dataset.fingerprint.get("model", "")),
        created_from=dataset.sources,
        graph_sizes=dataset.graph_sizes,
        modes={MODE_NAMES[mode]: fit.model for mode, fit in fits.items()},
        host=host,
        launch=fit_launch(dataset.samples, num_folds=num_folds, seed=seed),
        decode_spread=(
            decode_spread(decodes, fits[ForwardMode.DECODE].held_out_ns) if decodes else None
        ),
    )


def device_samples(samples: Sequence[Sample], num_folds: int) -> Sequence[Sample]:
    """The samples of one mode that tell what the device needs.

    They are those that did not wait for their launch. If these are too few to fit, all are taken:
    their times are what the device and the launch took together.
    """
    free = [sample for sample in samples if not sample.is_launch_bound]
    enough = free and num_compositions(free) >= _needed(free[0].step.mode, num_folds)
    return free if enough else samples


def fit_remarks(dataset: Dataset, num_folds: int) -> list[str]:
    """What a reader should know of the samples, one line each."""
    lines = []
    if not dataset.knows_graphs and dataset.graph_sizes:
        sizes = ", ".join(map(str, dataset.graph_sizes))
        lines.append(
            f"no log says for which rows graphs were captured: taken are those that ran ({sizes})"
        )
    for mode, samples in dataset.samples.items():
        num_bound = sum(sample.is_launch_bound for sample in samples)
        if num_bound:
            left_out = len(device_samples(samples, num_folds)) < len(samples)
            fate = (
                "left out of the device's fit" if left_out else "taken, as the others are too few"
            )
            lines.append(
                f"{MODE_NAMES[mode]}: {num_bound:,} of {len(samples):,} steps and points waited for"
                f" their launch: {fate}"
            )
    return lines


def _check_enough(samples: Mapping[ForwardMode, Sequence[Sample]], num_folds: int) -> None:
    for mode, of_mode in samples.items():
        needed, found = _needed(mode, num_folds), num_compositions(of_mode)
        if found < needed:
            raise InputError(
                f"{MODE_NAMES[mode]}: {found} different points are too few to fit,"
                f" at least {needed} are needed"
            )


def _needed(mode: ForwardMode, num_folds: int) -> int:
    """Twice as many points as terms, so that the terms can be told apart; two for each fold."""
    return max(2 * len(MODE_TERMS[mode].device), 2 * num_folds)
