"""Folds for cross-validation that keep samples of similar compositions together."""

from collections.abc import Iterator, Sequence

import numpy as np

from calibrate.dataset import Sample
from sim.core.arrays import Bools


def num_compositions(samples: Sequence[Sample]) -> int:
    """How many different compositions were measured."""
    return len({sample.composition() for sample in samples})


def held_out(samples: Sequence[Sample], num_folds: int, seed: int) -> Iterator[Bools]:
    """Masks of held-out samples, one for each fold; shape [num_samples].

    Every sample is held out once. Equal samples and seed give equal folds.
    """
    numbers: dict[tuple[float, ...], int] = {}
    groups = [numbers.setdefault(sample.composition(), len(numbers)) for sample in samples]
    shuffled = np.random.default_rng(seed).permutation(len(numbers)) % num_folds
    fold_of = shuffled[np.array(groups)]
    for fold in range(min(num_folds, len(numbers))):
        yield fold_of == fold


def part(samples: Sequence[Sample], mask: Bools) -> tuple[Sample, ...]:
    """The samples a mask picks."""
    return tuple(samples[index] for index in np.flatnonzero(mask).tolist())
