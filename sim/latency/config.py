"""The `latency` section of a scenario: one class for each kind."""

from typing import Annotated, Literal

from pydantic import Field

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
