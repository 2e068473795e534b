"""The `latency` section of a scenario, and the model it asks for."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from sim.core.errors import InputError
from sim.latency.hardware import Hardware
from sim.latency.linear import LinearLatency
from sim.latency.model import LatencyModel
from sim.latency.shapes import ModelShape
from sim.strict_model import StrictModel

# Measured on an H200: 790 TFLOP/s of a 989 peak, 4.3 TB/s of a 4.8 peak. See docs/latency.md.
_DEFAULT_MFU = 790 / 989
_DEFAULT_BANDWIDTH_EFFICIENCY = 4.3 / 4.8

# A minute: far above any real cost, low enough that no step overflows 64-bit nanoseconds.
Seconds = Annotated[float, Field(ge=0, le=60)]
Efficiency = Annotated[float, Field(ge=0.001, le=1)]


class LinearLatencyConfig(StrictModel):
    """`kind: linear`, in seconds per step, token or request; see `LinearLatency`."""

    kind: Literal["linear"]
    step_s: Seconds
    per_prefill_token_s: Seconds
    per_decode_request_s: Seconds
    per_context_token_s: Seconds
    host_s: Seconds = 0.0
    cold_start_s: Seconds = 0.0


class RooflineLatencyConfig(StrictModel):
    """`kind: roofline`: shares of the hardware's peaks that are reached; see `RooflineLatency`."""

    kind: Literal["roofline"]
    mfu: Efficiency = _DEFAULT_MFU
    bandwidth_efficiency: Efficiency = _DEFAULT_BANDWIDTH_EFFICIENCY
    step_overhead_s: Seconds = 0.0
    host_s: Seconds = 0.0


class RecordedLatencyConfig(StrictModel):
    """`kind: recorded`: a decision log, its path relative to the scenario's directory."""

    kind: Literal["recorded"]
    path: Annotated[str, Field(min_length=1)]


class AiconfiguratorLatencyConfig(StrictModel):
    """`kind: aiconfigurator`: a measured system, by its names there; see `open_database`."""

    kind: Literal["aiconfigurator"]
    system: Annotated[str, Field(min_length=1)]
    backend: Annotated[str, Field(min_length=1)] = "sglang"
    version: Annotated[str, Field(min_length=1)] | None = None
    tp: Literal[1, 2, 4, 8] = 1
    host_s: Seconds = 0.0


class ProfileLatencyConfig(StrictModel):
    """`kind: profile`: the name of a shipped profile, or the path of a file; see `load_profile`."""

    kind: Literal["profile"]
    path: Annotated[str, Field(min_length=1)]


class LayersLatencyConfig(StrictModel):
    """`kind: layers`: published tables of layers or whole models; see `build_layers`.

    Times of the host are numbers or a file of them (`read_host_times`).
    """

    kind: Literal["layers"]
    path: Annotated[str, Field(min_length=1)]
    tp: Annotated[int, Field(ge=1, le=1024)] = 1
    num_layers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    table_model: Annotated[str, Field(min_length=1)] | None = None
    table_hardware: Annotated[str, Field(min_length=1)] | None = None
    spread_correction: bool = False
    all_reduce_latency_s: Seconds | None = None
    all_reduce_gb_s: Annotated[float, Field(ge=0, le=1e6)] | None = None
    host_s: Seconds = 0.0
    host_per_request_s: Seconds = 0.0
    host: Annotated[str, Field(min_length=1)] | None = None


LatencyConfig = Annotated[
    LinearLatencyConfig
    | RooflineLatencyConfig
    | RecordedLatencyConfig
    | AiconfiguratorLatencyConfig
    | ProfileLatencyConfig
    | LayersLatencyConfig,
    Field(discriminator="kind"),
]


def num_devices(config: LatencyConfig) -> int:
    """How many devices each replica's model is split over."""
    if isinstance(config, AiconfiguratorLatencyConfig | LayersLatencyConfig):
        return config.tp
    return 1


def build_latency(
    config: LatencyConfig,
    *,
    model: ModelShape | None,
    hardware: Hardware | None,
    base_dir: Path,
    overlaps: bool = True,
    replica: int = 0,
) -> LatencyModel:
    """The latency model a scenario asks for: one call for each replica, as a recording has state.

    Args:
        config: the scenario's section.
        model: shapes of the served model, if known.
        hardware: the accelerator, if known.
        base_dir: what paths are relative to.
        overlaps: the scheduler overlaps; profiles have host times for either way.
        replica: which server the model is for; recordings know their servers.

    Raises:
        InputError: a roofline without model or hardware, or an unusable recording, profile or
            table.
    """
    if isinstance(config, LinearLatencyConfig):
        return LinearLatency(**config.model_dump(exclude={"kind"}))
    if isinstance(config, RecordedLatencyConfig):
        return _recorded(config, base_dir, replica)
    if isinstance(config, ProfileLatencyConfig):
        return _profile(config, model, base_dir, overlaps=overlaps)
    if isinstance(config, LayersLatencyConfig):
        return _layers(config, model, base_dir, overlaps=overlaps)
    if model is None:
        raise InputError(f"kind {config.kind} needs the scenario's model", key=("latency",))
    if isinstance(config, AiconfiguratorLatencyConfig):
        return _aiconfigurator(config, model)
    if hardware is None:
        raise InputError("kind roofline needs the scenario's hardware", key=("latency",))
    return _roofline(config, model, hardware)


def _recorded(config: RecordedLatencyConfig, base_dir: Path, replica: int) -> LatencyModel:
    from sim.latency.recorded import RecordedLatency

    return RecordedLatency.from_file(base_dir / config.path, replica)


def _profile(
    config: ProfileLatencyConfig, model: ModelShape | None, base_dir: Path, *, overlaps: bool
) -> LatencyModel:
    from sim.latency.profile import ProfileLatency

    latency = ProfileLatency.from_file(config.path, base_dir=base_dir, overlaps=overlaps)
    if model is not None and latency.profile.model != model.name:
        raise InputError(
            f"profile {config.path} was measured on {latency.profile.model},"
            f" the scenario's model is {model.name}",
            key=("latency",),
        )
    return latency


def _layers(
    config: LayersLatencyConfig, model: ModelShape | None, base_dir: Path, *, overlaps: bool
) -> LatencyModel:
    from sim.latency.layers.build import build_layers

    return build_layers(config, model=model, base_dir=base_dir, overlaps=overlaps)


def _aiconfigurator(config: AiconfiguratorLatencyConfig, model: ModelShape) -> LatencyModel:
    from sim.latency.aiconfigurator import AiconfiguratorLatency
    from sim.latency.aiconfigurator_package import open_database

    database = open_database(config.system, config.backend, config.version)
    return AiconfiguratorLatency(model, database, tp=config.tp, host_s=config.host_s)


def _roofline(config: RooflineLatencyConfig, model: ModelShape, hardware: Hardware) -> LatencyModel:
    from sim.latency.roofline import RooflineLatency

    return RooflineLatency(model, hardware, **config.model_dump(exclude={"kind"}))
