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
# What is measured of a point's engine: the names that a row must share with the point, if nothing
# else is lacking. The first that some row has is taken.
LACKS: Mapping[str, tuple[str, ...]] = {
    "nothing": ("model", "gpu", "version"),
    "version": ("model", "gpu"),
    "gpu": ("model",),
    "model": ("architecture",),
    "architecture": (),
}


class Nearness(NamedTuple):
    """How far two servers are from each other: the sum of what their differences count.

    Attributes:
        names: what another name counts, of each of NAMES.
        sizes: what twice the size counts, of each of SIZES.
        spread: what the spread is taken to be where few servers are near, as a share.
        spread_weight: the weight of that, in servers.
    """

    names: Sequence[float]
    sizes: Sequence[float]
    spread: float
    spread_weight: float


class Calibration(NamedTuple):
    """The numbers that were chosen on measured servers.

    Attributes:
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
    """How far each server is from a point; shape [rows]. Sizes that are not known count nothing."""
    names = sum(
        count * ~servers.with_the(point, name)
        for name, count in zip(NAMES, nearness.names, strict=True)
    )
    sizes = np.nan_to_num(np.abs(servers.sizes - sizes_of(point))) @ np.array(nearness.sizes)
    return np.asarray(names + sizes, dtype=np.float64)


def spread_of(servers: MeasuredServers, far: Float64, rows: Bools, nearness: Nearness) -> Spread:
    """The weighted median error of these rows, and the mean distance of errors from it."""
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

    Where the servers that share most with the point are farther from it than `reach`, for example
    because nobody measured them with prompts as long, it is as if they were not there.
    """
    for name, shared in LACKS.items():
        like_it = servers.with_the(point, "engine", *shared) & rows
        if like_it.any() and far[like_it].min() <= reach[name]:
            return name
    return None
