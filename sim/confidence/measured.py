"""Measured servers, and how far simulations of them were off.

`measured.csv.gz` has a line for each server of the development half of NVIDIA's table
(docs/hardware.md) with its load. `python -m silicon.confidence` writes it.
"""

import csv
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from sim.confidence.point import Point
from sim.core.arrays import Bools, Float64

FILE = "measured.csv.gz"
# Fields of a point: names, which are equal or not, and sizes, which are more or less alike.
NAMES = ("engine", "version", "architecture", "model", "gpu")
SIZES = ("weight_bits", "num_gpus", "prompt_tokens", "output_tokens", "concurrency")
METRICS = ("ttft", "tpot", "throughput")
# Sizes that differ by less than a tenth are called the same.
_ALIKE = np.log2(1.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredServers:
    """Servers under a load, one a row.

    Attributes:
        served: the model and the engine's version, as the table has them.
        names: the values of each of NAMES.
        sizes: logarithms to base 2 of SIZES; shape [rows, 5].
        errors: natural logarithms of the measured mean over the simulated one, of METRICS; shape
            [rows, 3].
    """

    served: Sequence[tuple[str, str]]
    names: Mapping[str, np.ndarray[tuple[int], np.dtype[np.object_]]]
    sizes: Float64
    errors: Float64

    @classmethod
    def of(
        cls, served: Sequence[tuple[str, str]], points: Sequence[Point], errors: Iterable[object]
    ) -> "MeasuredServers":
        """The servers at these points."""
        return cls(
            served=served,
            names={name: np.array([getattr(p, name) for p in points], object) for name in NAMES},
            sizes=np.array([sizes_of(point) for point in points]),
            errors=np.array(errors, np.float64),
        )

    def __len__(self) -> int:
        return len(self.served)

    def group(self, row: int) -> tuple[object, ...]:
        """What servers have in common that differ in their number of GPUs and their load only."""
        return (*self.served[row], self.names["gpu"][row], self.sizes[row][0])

    def described(self, row: int, point: Point) -> dict[str, object]:
        """A row, as users call such a server, and in what it differs from a point (`differs`)."""
        model, version = self.served[row]
        sizes = (round(float(2**size)) for size in self.sizes[row])
        engine, gpu = self.names["engine"][row], self.names["gpu"][row]
        return {
            "engine": engine,
            "version": version,
            "model": model,
            "gpu": gpu,
            **dict(zip(SIZES, sizes, strict=True)),
            "differs": [
                *(name for name in NAMES if self.names[name][row] != getattr(point, name)),
                *np.array(SIZES)[np.abs(self.sizes[row] - sizes_of(point)) > _ALIKE].tolist(),
            ],
        }

    def with_the(self, point: Point, *names: str) -> Bools:
        """The rows that have the same names as a point; shape [rows]."""
        same = np.ones(len(self), np.bool_)
        for name in names:
            same &= self.names[name] == getattr(point, name)
        return same


def sizes_of(point: Point) -> Float64:
    """Logarithms to base 2 of the point's SIZES; shape [5]. NaN (not known) stays NaN."""
    return np.log2([max(float(getattr(point, name)), 1.0) for name in SIZES])


@cache
def measured_servers() -> MeasuredServers:
    """The measured servers of the development half."""
    packed = files(__package__).joinpath(FILE).read_bytes()
    lines = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))
    points = [
        Point._make([*(line[name] for name in NAMES), *(float(line[name]) for name in SIZES)])
        for line in lines
    ]
    errors = [[float(line[name]) for name in METRICS] for line in lines]
    return MeasuredServers.of(
        [(line["served_model"], line["served_version"]) for line in lines], points, errors
    )
