"""Measured servers, and how far off simulations of them were; a server under a load as a point.

`measured.csv.gz` has a line for each server of the development half of NVIDIA's table
(docs/hardware.md) with its load. `python -m silicon.confidence` writes it. `disaggregated.csv.gz`
has the same of deployments with prefill and decode servers (docs/hardware-disaggregated.md);
`python -m silicon.confidence_disaggregated` writes that.
"""

import csv
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Bools, Float64
from sim.core.errors import InputError
from sim.latency.architectures.model_key import find_model, shape_if_described
from sim.latency.config import AiconfiguratorLatencyConfig, parallelism
from sim.latency.shapes import ModelShape
from sim.scenario.schema import Scenario

# Bits of a weight, by how aiconfigurator-core's name of the format begins.
_BITS = {"nvfp4": 4, "int4": 4, "w4": 4, "fp8": 8, "int8": 8, "sq": 8}
_UNQUANTIZED_BITS = 16


class ServerPoint(NamedTuple):
    """A server under a load.

    Attributes:
        engine: scheduler family, `sglang` or `vllm`.
        version: of the family's rules.
        architecture: what its layers consist of (`architecture_of`).
        model: layers and width, which tell models of an architecture apart, whatever their weights'
            format is.
        gpu: `latency.system`.
        num_gpus: GPUs of a replica; of disaggregated servers, all GPUs.
        prompt_tokens, output_tokens: means over requests.
        concurrency: mean requests in a replica; of disaggregated servers, in all of them.
    """

    engine: str
    version: str
    architecture: str
    model: str
    gpu: str
    weight_bits: float
    num_gpus: int
    prompt_tokens: float
    output_tokens: float
    concurrency: float


class MeanLoad(NamedTuple):
    """Means over the requests of a run; `concurrency` is for each replica."""

    prompt_tokens: float
    output_tokens: float
    concurrency: float


def point_of(scenario: Scenario, base_dir: Path, load: MeanLoad) -> ServerPoint | None:
    """The point of a scenario; None: it has no model, or step times of another kind."""
    section = scenario.latency
    if not isinstance(section, AiconfiguratorLatencyConfig) or scenario.model is None:
        return None
    try:
        shape = shape_if_described(find_model(scenario.model, base_dir))
    except InputError:
        shape = None
    named = "" if shape is None else f"{shape.num_layers} layers of {shape.hidden_size}"
    return ServerPoint(
        scenario.scheduler.family,
        getattr(scenario.scheduler, "version", ""),
        architecture_of(shape),
        named or scenario.model,
        section.system,
        _weight_bits(section, shape),
        parallelism(section).num_gpus,
        *load,
    )


def point_of_pools(pools: Sequence[Scenario], base_dir: Path, load: MeanLoad) -> ServerPoint | None:
    """The point of disaggregated servers, with names of all pools where these differ."""
    points = [point_of(pool, base_dir, load) for pool in pools]
    known = [point for point in points if point is not None]
    if len(known) < len(points):
        return None
    names = {name: ", ".join(dict.fromkeys(getattr(one, name) for one in known)) for name in NAMES}
    sizes = zip(known, pools, strict=True)
    num_gpus = sum(point.num_gpus * pool.replicas for point, pool in sizes)
    return ServerPoint._make([*names.values(), known[-1].weight_bits, num_gpus, *load])


def architecture_of(shape: ModelShape | None) -> str:
    """Experts or none, and the kinds of attention, such as `experts, latent attention`."""
    if shape is None:
        return "not known"
    kinds = [layer.attention for layer in shape.layers]
    named = {
        "experts": any(layer.experts for layer in shape.layers),
        "sparse attention": any(kind.top_keys for kind in kinds),
        "latent attention": any(kind.decode_pair_flops != kind.pair_flops for kind in kinds),
        "states": any(kind.state_bytes for kind in kinds),
        "windows": any(kind.window for kind in kinds),
    }
    return ", ".join(name for name, has in named.items() if has) or "dense"


def _weight_bits(section: AiconfiguratorLatencyConfig, shape: ModelShape | None) -> float:
    formats = section.quantization
    given = formats.moe or formats.gemm
    if given is not None:
        found = (bits for name, bits in _BITS.items() if given.startswith(name))
        return next(found, _UNQUANTIZED_BITS)
    return _UNQUANTIZED_BITS if shape is None else 8 * shape.weight_bytes / shape.num_parameters


FILE, DISAGGREGATED_FILE = "measured.csv.gz", "disaggregated.csv.gz"
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
        cls,
        served: Sequence[tuple[str, str]],
        points: Sequence[ServerPoint],
        errors: Iterable[object],
    ) -> "MeasuredServers":
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

    def described(self, row: int, point: ServerPoint) -> dict[str, object]:
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

    def with_the(self, point: ServerPoint, *names: str) -> Bools:
        """The rows that have the same names as a point; shape [rows]."""
        same = np.ones(len(self), np.bool_)
        for name in names:
            same &= self.names[name] == getattr(point, name)
        return same


def sizes_of(point: ServerPoint) -> Float64:
    """Logarithms to base 2 of the point's SIZES; shape [5]. NaN (not known) stays NaN."""
    return np.log2([max(float(getattr(point, name)), 1.0) for name in SIZES])


@cache
def measured_servers(*, disaggregated: bool = False) -> MeasuredServers:
    """The measured servers of the development half, or the disaggregated ones of it."""
    name = DISAGGREGATED_FILE if disaggregated else FILE
    packed = files(__package__).joinpath(name).read_bytes()
    lines = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))
    points = [
        ServerPoint._make([*(line[name] for name in NAMES), *(float(line[name]) for name in SIZES)])
        for line in lines
    ]
    errors = [[float(line[name]) for name in METRICS] for line in lines]
    return MeasuredServers.of(
        [(line["served_model"], line["served_version"]) for line in lines], points, errors
    )
