"""Draws random settings of a sweep, with one random stream for each key path."""

import math
from collections.abc import Callable

import numpy as np

from sim.scenario.search_sections import (
    ChoiceDraw,
    Draw,
    IntDraw,
    LogUniformDraw,
    RandomSection,
    UniformDraw,
)
from sim.scenario.strict_yaml import YamlValue
from sim.workload.rng import RandomStreams


def draw_settings(section: RandomSection) -> list[dict[str, YamlValue]]:
    """`num_points` settings, each a mapping of key paths to values.

    A key path's values depend on the seed and its own name alone. So with more points or other
    keys, its first values stay the same.
    """
    streams = RandomStreams(section.seed, "sweep")
    drawers = {key: _drawer(draw, streams.stream(key)) for key, draw in section.draw.items()}
    return [{key: draw() for key, draw in drawers.items()} for _ in range(section.num_points)]


def _drawer(draw: Draw, rng: np.random.Generator) -> Callable[[], YamlValue]:
    match draw:
        case UniformDraw():
            return lambda: float(rng.uniform(draw.min, draw.max))
        case LogUniformDraw():
            return lambda: log_uniform(rng, draw.min, draw.max)
        case IntDraw():
            return lambda: int(rng.integers(draw.min, draw.max, endpoint=True))
        case ChoiceDraw():
            return lambda: draw.values[int(rng.integers(len(draw.values)))]


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number from `low` to `high` whose logarithm is uniformly distributed."""
    drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    # Rounding must not leave the range.
    return min(max(drawn, low), high)
