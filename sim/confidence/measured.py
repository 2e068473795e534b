"""Measured servers, and how far simulations of them were off.

`measured.csv.gz` has a line for each server of the development half of NVIDIA's table
(docs/hardware.md) with its load: `python -m silicon.confidence` writes it. `intervals.json` has the
numbers that it chose on these servers.
"""

import csv
import gzip
import io
import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from sim.confidence.point import Point
from sim.core.arrays import Float64, Int64

_PACKAGE = "sim.confidence"
# What a point has of each kind, in the order of `MeasuredServers.names` and `.sizes`.
NAMES = ("engine", "version", "architecture", "model", "gpu")
SIZES = ("weight_bits", "num_gpus", "prompt_tokens", "output_tokens", "concurrency")
METRICS = ("ttft", "tpot", "throughput")


class MeasuredServers(NamedTuple):
    """Servers under a load, one a row.

    Attributes:
        served: what users call the model, and the engine's own version.
        names: the values of NAMES; shape [rows, 5].
        sizes: logarithms to base 2 of SIZES; shape [rows, 5].
        errors: natural logarithms of the measured mean over the simulated one, of METRICS; shape
            [rows, 3].
    """

    served: tuple[tuple[str, str], ...]
    names: np.ndarray[tuple[int, int], np.dtype[np.str_]]
    sizes: Float64
    errors: Float64
