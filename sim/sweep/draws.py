"""Random settings of a sweep: one stream of draws for every key path."""

import math
from collections.abc import Callable

import numpy as np

from sim.scenario.sweep_section import (
    ChoiceDraw,
    Draw,
    IntDraw,
    LogUniformDraw,
    RandomSection,
    UniformDraw,
)
from sim.scenario.yaml_loader import YamlValue
from sim.workload.rng import RandomStreams

_Generator = np.random.Generator


def draw_settings(section: RandomSection) -> list[dict[str, YamlValue]]:
    """`num_points` settings, each a mapping of key paths to values.

    A key path's values depend on the seed and its own name alone. So with more points or other
    keys, its first values stay the same.
    """
    streams = RandomStreams(section.seed, "sweep")
    drawers = {key: _drawer(draw, streams.stream(key)) for key, draw in section.draw.items()}
    return [{key: draw() for key, draw in drawers.items()} for _ in range(section.num_points)]


def _drawer(draw: Draw, rng: _Generator) -> Callable[[], YamlValue]:
    match draw:
        case UniformDraw():
            return lambda: float(rng.uniform(draw.min, draw.max))
        case LogUniformDraw():
            low, high = math.log(draw.min), math.log(draw.max)
            # Rounding must not leave the range.
            return lambda: min(max(math.exp(rng.uniform(low, high)), draw.min), draw.max)
        case IntDraw():
            return lambda: int(rng.integers(draw.min, draw.max, endpoint=True))
        case ChoiceDraw():
            return lambda: _chosen(draw, rng)


def _chosen(draw: ChoiceDraw, rng: _Generator) -> YamlValue:
    value: YamlValue = draw.values[int(rng.integers(len(draw.values)))]
    return value
