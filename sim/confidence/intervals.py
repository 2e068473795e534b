"""The interval of a mean, from how far off simulations of the nearest measured servers were.

    errors of the measured servers, each weighted by how near it is to the point
        --> their median, and their mean distance from it (the spread)
        --> interval = median + [low, high] x spread; in between: median + expected x spread

`low` and `high` are such that the intervals hold for 90 % of the measured servers themselves, each
left out in turn (conformal prediction). They depend on what the measured servers lack of the point:
intervals are wider if nobody has measured its model. For those, all servers with a model are left
out in turn, and so on (`LACKS`).
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from sim.confidence.measured import METRICS, NAMES, MeasuredServers, sizes_of
from sim.confidence.point import Point
from sim.core.arrays import Bools, Float64

FILE = "calibration.json"
# What the measured servers lack of a point, and the names that a row must then share with it,
# beside the engine. The first for which there are rows is taken.
LACKS: Mapping[str, tuple[str, ...]] = {
    "nothing": ("model", "gpu", "version"),
    "version": ("model", "gpu"),
    "gpu": ("model",),
    "model": ("architecture",),
    "architecture": (),
}


class Nearness(NamedTuple):
    """How the distance of two servers is computed, a sum over their differences.

    Attributes:
        names: distance that is added if a name differs, for each of NAMES.
        sizes: distance that is added for each doubling of a size, for each of SIZES.
        spread: the spread that is assumed before any server is looked at, as a natural logarithm.
        spread_weight: how many servers at distance 0 that assumption counts as.
    """

    names: Sequence[float]
    sizes: Sequence[float]
    spread: float
    spread_weight: float


class Calibration(NamedTuple):
    """The numbers that were chosen on measured servers.

    Attributes:
        level_pct: percentage of the measured servers that are inside of their intervals.
        nearness: how distances between servers are computed.
        bounds: `low`, `expected` and `high` of each metric, by what is lacking.
        reach: the distance at which a server is not near any more, by what is lacking.
    """

    level_pct: float
    nearness: Nearness
    bounds: Mapping[str, Sequence[Sequence[float]]]
    reach: Mapping[str, float]


@cache
def calibration() -> Calibration:
    """The numbers that `python -m silicon.confidence` chose on the development half."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    content = json.loads(text)
    return Calibration(**{**content, "nearness": Nearness(**content["nearness"])})


class Spread(NamedTuple):
    """The errors of the servers that are near, as logarithms; shape of both: [metrics]."""

    median: Float64
    spread: Float64


def distances(servers: MeasuredServers, point: Point, nearness: Nearness) -> Float64:
    """How far each server is from a point; shape [rows]. A size that is not known adds nothing."""
    names = sum(
        count * ~servers.with_the(point, name)
        for name, count in zip(NAMES, nearness.names, strict=True)
    )
    sizes = np.nan_to_num(np.abs(servers.sizes - sizes_of(point))) @ np.array(nearness.sizes)
    return np.asarray(names + sizes, dtype=np.float64)


def spread_of(servers: MeasuredServers, far: Float64, rows: Bools, nearness: Nearness) -> Spread:
    """The weighted median error of these rows, and the mean distance of errors from it.

    Args:
        servers: the measured servers.
        far: the distance of each from the point; shape [rows].
        rows: which of them count; shape [rows].
        nearness: the assumed spread.
    """
    weights = np.exp(-far[rows])
    errors = servers.errors[rows]
    order = np.argsort(errors, axis=0)
    sums = np.cumsum(weights[order], axis=0)
    places = (sums < sums[-1] / 2).sum(axis=0)
    columns = np.arange(len(METRICS))
    median = errors[order[places, columns], columns]
    deviations = (weights[:, None] * np.abs(errors - median)).sum(axis=0)
    prior = nearness.spread_weight
    spread = (deviations + prior * nearness.spread) / (weights.sum() + prior)
    return Spread(median, spread)


def lacking(
    servers: MeasuredServers,
    point: Point,
    far: Float64,
    rows: Bools,
    reach: Mapping[str, float],
) -> str | None:
    """What these rows lack of a point, a key of LACKS; None: nothing near it was measured.

    Servers farther from the point than `reach` (by key of LACKS) do not count, for example those
    that were measured with much shorter prompts only. `far` and `rows` are as in `spread_of`.
    """
    for name, shared in LACKS.items():
        like_it = servers.with_the(point, "engine", *shared) & rows
        if like_it.any() and far[like_it].min() <= reach[name]:
            return name
    return None
