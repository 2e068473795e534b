"""Measured rows with bounds of their errors, from the servers that were measured beside them."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from silicon.confidence import Placed, bounds_of, ends_of, folds, placed, sample_of_half
from silicon.kept import judged_half
from silicon.scores import Judged
from sim.confidence import intervals
from sim.confidence.measured import ServerPoint
from sim.core.arrays import Float64


class BoundedRow(NamedTuple):
    """A judged row, with bounds of its error from the servers of the development half.

    Attributes:
        factors: what the measured mean over the simulated one does not exceed, in this share of
            such servers; shape [metrics, levels]. None if no such server is near.
    """

    judged: Judged
    point: ServerPoint
    factors: Float64 | None


@cache
def _placed_half(name: str) -> list[Placed]:
    """The rows of a half beside the servers of the development half, for all that is left out."""
    judges, chosen = sample_of_half("development").servers, intervals.calibration()
    sample = sample_of_half(name)
    return placed(judges, list(folds(judges, sample)), chosen.nearness, chosen.reach)


def bounded_rows(levels: Sequence[float], left_out: str = "nothing") -> list[BoundedRow]:
    """All judged rows with their bounds; no row judges itself.

    Bounds come from the development half alone.
    `left_out` is a key of `LACKS`: as if nobody had measured the row's model, for example.
    """
    near = {name: _placed_half(name) for name in ("development", "held-out")}
    bounds = bounds_of([one for one in near["development"] if one.lacks is not None], levels)
    found = []
    for half, all_placed in near.items():
        folded = [one for one in all_placed if one.fold.left_out == left_out]
        for row, one in zip(judged_half(half), folded, strict=True):
            factors = None if one.lacks is None else np.exp(ends_of(one, bounds))
            found.append(BoundedRow(row, one.fold.point, factors))
    return found
