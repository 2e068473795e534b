"""Folds for cross-validation that keep samples of similar compositions together."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from calibrate.dataset import Sample
from sim.core.arrays import Bools, Float64


def num_compositions(samples: Sequence[Sample]) -> int:
    """How many different compositions were measured."""
    return len({sample.composition() for sample in samples})


def composition_weights(samples: Sequence[Sample]) -> Float64:
    """A weight for each sample: those of one composition share a weight of 1."""
    compositions = [sample.composition() for sample in samples]
    counts = Counter(compositions)
    return np.array([1 / counts[composition] for composition in compositions])


def held_out(samples: Sequence[Sample], num_folds: int, seed: int) -> Iterator[Bools]:
    """Masks of held-out samples, one for each fold; shape [num_samples].

    Every sample is held out once. Equal samples and seed give equal folds. Where a fold would have
    fewer than two compositions, each composition is a fold.
    """
    numbers: dict[tuple[float, ...], int] = {}
    groups = [numbers.setdefault(sample.composition(), len(numbers)) for sample in samples]
    if len(numbers) < 2 * num_folds:
        num_folds = len(numbers)
    shuffled = np.random.default_rng(seed).permutation(len(numbers)) % num_folds
    fold_of = shuffled[np.array(groups)]
    for fold in range(num_folds):
        yield fold_of == fold


def part(samples: Sequence[Sample], mask: Bools) -> tuple[Sample, ...]:
    """The samples a mask picks."""
    return tuple(samples[index] for index in np.flatnonzero(mask).tolist())
