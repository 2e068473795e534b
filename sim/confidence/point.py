"""A server under a load, as far as the error of a simulation depends on it."""

from pathlib import Path
from typing import NamedTuple

from sim.core.errors import InputError
from sim.latency.architectures.model_key import find_model, shape_if_described
from sim.latency.config import AiconfiguratorLatencyConfig, parallelism
from sim.latency.shapes import ModelShape
from sim.scenario.schema import Scenario

# Bits of a weight, by how aiconfigurator-core's name of the format begins.
_BITS = {"nvfp4": 4, "int4": 4, "w4": 4, "fp8": 8, "int8": 8, "sq": 8}
_UNQUANTIZED_BITS = 16


class Point(NamedTuple):
    """A server under a load.

    Attributes:
        engine: scheduler family, `sglang` or `vllm`.
        version: of the family's rules.
        architecture: what its layers consist of (`architecture_of`).
        model: layers and width, which tell models of an architecture apart, whatever their weights'
            format is.
        gpu: `latency.system`.
        weight_bits: bits of a weight, on average.
        num_gpus: GPUs of a replica.
        prompt_tokens, output_tokens: means over requests.
        concurrency: mean requests in a replica.
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


class Load(NamedTuple):
    """Means over the requests of a run; `concurrency` is for each replica."""

    prompt_tokens: float
    output_tokens: float
    concurrency: float


def point_of(scenario: Scenario, base_dir: Path, load: Load) -> Point | None:
    """The point of a scenario; None: it has no model, or step times of another kind."""
    section = scenario.latency
    if not isinstance(section, AiconfiguratorLatencyConfig) or scenario.model is None:
        return None
    try:
        shape = shape_if_described(find_model(scenario.model, base_dir))
    except InputError:
        shape = None
    named = "" if shape is None else f"{shape.num_layers} layers of {shape.hidden_size}"
    return Point(
        scenario.scheduler.family,
        getattr(scenario.scheduler, "version", ""),
        architecture_of(shape),
        named or scenario.model,
        section.system,
        _weight_bits(section, shape),
        parallelism(section).num_gpus,
        *load,
    )


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
