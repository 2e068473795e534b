"""Fits a latency profile to the samples of run logs."""

from collections.abc import Mapping, Sequence

from calibrate.dataset import Dataset, Sample
from calibrate.errors_by_mode import decode_spread
from calibrate.fit_mode import enough_for_knees, fit_mode
from calibrate.folds import num_compositions
from calibrate.host_model import fit_host, fit_launch
from calibrate.left_out import left_out_errors
from sim.core.batch import ForwardMode
from sim.core.errors import InputError
from sim.latency.profile.format import MODE_NAMES, SCHEMA_VERSION, LatencyProfile, LeftOut
from sim.latency.profile.quantities import MODE_TERMS

# Different points that tell anything about others.
_FEWEST = 2


def fit_profile(
    dataset: Dataset, *, name: str, label: str = "", num_folds: int = 5, seed: int = 0
) -> LatencyProfile:
    """Fit every mode of the dataset, and host times. Equal input gives an equal profile.

    Args:
        dataset: measured steps and points.
        name: the profile's name in messages.
        label: a short description of it.
        num_folds: the samples are divided into this many parts. The errors on each part are those
            of a fit without this part. If there are fewer than two points for each part, every
            point is a part.
        seed: for the random division into parts.

    Raises:
        InputError: a mode has too few different points, or its host time is not known.
    """
    _check_enough(dataset.samples)
    fits = {
        mode: fit_mode(device_samples(samples), dataset.graph_sizes, num_folds=num_folds, seed=seed)
        for mode, samples in dataset.samples.items()
    }
    host = fit_host(dataset.samples, num_folds=num_folds, seed=seed)
    for mode in fits:
        if not any(MODE_NAMES[mode] in model.modes for model in host):
            files = ", ".join(source.file for source in dataset.sources)
            raise InputError(f"{files}: no host times of {MODE_NAMES[mode]} steps")
    decodes = device_samples(dataset.samples.get(ForwardMode.DECODE, ()))
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
        left_out=_left_out(dataset, seed),
        decode_spread=(
            decode_spread(decodes, fits[ForwardMode.DECODE].held_out_ns) if decodes else None
        ),
    )


def _left_out(dataset: Dataset, seed: int) -> tuple[LeftOut, ...]:
    files = [source.file for source in dataset.sources]
    return tuple(
        found
        for samples in dataset.samples.values()
        for found in left_out_errors(device_samples(samples), files, dataset.graph_sizes, seed=seed)
    )


def device_samples(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples of one mode that tell what the device needs.

    They are those that did not wait for their launch. If there are fewer of these than terms, all
    are taken: their times are what the device and the launch took together.
    """
    free = [sample for sample in samples if not sample.is_launch_bound]
    enough = free and num_compositions(free) >= len(MODE_TERMS[free[0].step.mode].device)
    return free if enough else samples


def fit_remarks(dataset: Dataset, profile: LatencyProfile) -> list[str]:
    """What a reader should know of the samples, one line each."""
    lines = []
    if not dataset.knows_graphs and dataset.graph_sizes:
        sizes = ", ".join(map(str, dataset.graph_sizes))
        lines.append(
            f"no log says for which rows graphs were captured: taken are those that ran ({sizes})"
        )
    for mode, samples in dataset.samples.items():
        used = device_samples(samples)
        num_bound = sum(sample.is_launch_bound for sample in samples)
        if num_bound:
            fate = "taken, as the others are too few"
            if len(used) < len(samples):
                fate = "left out of the device's fit"
            lines.append(
                f"{MODE_NAMES[mode]}: {num_bound:,} of {len(samples):,} steps and points waited for"
                f" their launch: {fate}"
            )
        if not enough_for_knees(used):
            errors = profile.modes[MODE_NAMES[mode]].errors
            lines.append(
                f"{MODE_NAMES[mode]}: fitted to {num_compositions(used)} different points, without"
                f" knees and table. Predicted from the others, a point is off by"
                f" {errors.mape_pct:.1f} % on average, {errors.max_pct:.1f} % at most"
            )
    return lines


def _check_enough(samples: Mapping[ForwardMode, Sequence[Sample]]) -> None:
    for mode, of_mode in samples.items():
        if num_compositions(of_mode) < _FEWEST:
            raise InputError(
                f"{MODE_NAMES[mode]}: one point is too few to fit, at least {_FEWEST} different"
                " ones are needed"
            )
