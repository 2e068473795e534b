"""Builds the latency model that a scenario's `latency` section asks for."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from sim.core.errors import InputError
from sim.core.files import located
from sim.latency.config import (
    AiconfiguratorLatencyConfig,
    BuiltInLatency,
    LayersLatencyConfig,
    LinearLatencyConfig,
    ProfileLatencyConfig,
    RecordedLatencyConfig,
    RooflineLatencyConfig,
)
from sim.latency.linear import LinearLatency
from sim.latency.model import LatencyModel
from sim.latency.wrappers import DraftingLatency, ScaledLatency

if TYPE_CHECKING:
    from sim.latency.hardware import Hardware
    from sim.latency.shapes import ModelShape


class ServedBy(NamedTuple):
    """What a latency model must know of the server.

    Attributes:
        overlaps: the scheduler decides a step while the one before runs.
        replica: the replica's number; a recording may have the steps of several.
        graph_sizes: numbers of decode rows that CUDA graphs were captured for; kind aiconfigurator
            pads steps to them.
        num_drafts: draft tokens of a row in a step; 0: no speculative decoding.
        drafter: what makes the drafts: a `layer` for each, a `model`, or `nothing` that takes time.
    """

    overlaps: bool = True
    replica: int = 0
    graph_sizes: tuple[int, ...] = ()
    num_drafts: int = 0
    drafter: Literal["nothing", "layer", "model"] = "nothing"


_ANY_SERVER = ServedBy()


def build_latency(
    config: BuiltInLatency,
    *,
    model: "ModelShape | None",
    hardware: "Hardware | None",
    base_dir: Path,
    model_name: str | None = None,
    server: ServedBy = _ANY_SERVER,
) -> LatencyModel:
    """Build one replica's latency model. Replicas do not share models, because models have state.

    Shapes of the served `model` and its `hardware` are None if they are not known. Kind
    aiconfigurator knows architectures that no `ModelShape` describes, by `model_name`.
    """
    if server.num_drafts:
        _check_drafts(config, server)
    if isinstance(config, LinearLatencyConfig):
        return LinearLatency(**config.model_dump(exclude={"kind", "dp"}))
    if isinstance(config, RecordedLatencyConfig):
        from sim.latency.recorded import RecordedLatency

        return RecordedLatency.from_file(located(base_dir, config.path), server.replica)
    if isinstance(config, ProfileLatencyConfig):
        profile = _profile(config, model, base_dir, overlaps=server.overlaps)
        return _with_drafts(profile, config, server.num_drafts)
    if isinstance(config, LayersLatencyConfig):
        from sim.latency.layers.build import build_layers

        verifies = server.num_drafts > 0
        layers = build_layers(
            config, model=model, base_dir=base_dir, overlaps=server.overlaps, verifies=verifies
        )
        return _with_drafts(layers, config, server.num_drafts)
    if isinstance(config, AiconfiguratorLatencyConfig):
        if model_name is None:
            raise _lacks(config, "model")
        return _aiconfigurator(config, model_name, base_dir, server)
    return _roofline(config, model, hardware, server.num_drafts)


def _check_drafts(config: BuiltInLatency, server: ServedBy) -> None:
    """Check that the kind knows the times of steps with draft tokens."""
    shared = RooflineLatencyConfig | ProfileLatencyConfig | LayersLatencyConfig
    if isinstance(config, shared):
        if server.drafter != "nothing" and config.drafter_share is None:
            reason = "is required with this method of speculative decoding"
            raise InputError(reason, key=("latency", "drafter_share"))
    elif isinstance(config, AiconfiguratorLatencyConfig) and server.drafter == "model":
        reason = "kind aiconfigurator knows drafts of layers and n-grams, not those of a model"
        raise InputError(reason, key=("latency",))


def _with_drafts(
    model: LatencyModel, config: ProfileLatencyConfig | LayersLatencyConfig, num_drafts: int
) -> LatencyModel:
    """The model, for a server whose steps verify draft tokens."""
    if not num_drafts:
        return model
    share = num_drafts * (config.drafter_share or 0.0)
    return DraftingLatency(model, share, as_prefill=isinstance(config, ProfileLatencyConfig))


def _lacks(config: BuiltInLatency, key: str) -> InputError:
    return InputError(f"kind {config.kind} needs the scenario's {key}", key=("latency",))


def _profile(
    config: ProfileLatencyConfig, model: "ModelShape | None", base_dir: Path, *, overlaps: bool
) -> LatencyModel:
    from sim.latency.profile.model import ProfileLatency

    latency = ProfileLatency.from_file(config.path, base_dir=base_dir, overlaps=overlaps)
    if model is not None and latency.profile.model != model.name:
        raise InputError(
            f"profile {config.path} was measured on {latency.profile.model},"
            f" the scenario's model is {model.name}",
            key=("latency",),
        )
    return latency


def _aiconfigurator(
    config: AiconfiguratorLatencyConfig, model_name: str, base_dir: Path, server: ServedBy
) -> LatencyModel:
    from sim.latency.aiconfigurator.deployment import deployment_of
    from sim.latency.aiconfigurator.model import composed_latency
    from sim.latency.aiconfigurator.package import known_models

    deployment = deployment_of(config, model_name, base_dir, known_models())
    if server.drafter == "layer":
        deployment = deployment._replace(draft_layers=server.num_drafts)
    latency = composed_latency(deployment, config.host_s, server.graph_sizes)
    return latency if config.efficiency == 1 else ScaledLatency(latency, config.efficiency)


def _roofline(
    config: RooflineLatencyConfig,
    model: "ModelShape | None",
    hardware: "Hardware | None",
    num_drafts: int,
) -> LatencyModel:
    from sim.latency.roofline import RooflineLatency

    if model is None:
        raise _lacks(config, "model")
    if hardware is None:
        raise _lacks(config, "hardware")
    model.check_tp(config.tp)
    return RooflineLatency(model, hardware, config, num_drafts)
