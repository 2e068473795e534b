"""Builds the latency model that a scenario's `latency` section asks for, or loads the user's own.

A model of the user's own is `latency: module:Class` (docs/how-to/plug-in.md#latency).
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError, KeyPath
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
from sim.latency.features import StepFeatures
from sim.latency.hardware import Hardware
from sim.latency.kinds.linear import LinearLatency
from sim.latency.model import LatencyModel, StepLatency, StepTime, asked_step_by_step
from sim.latency.wrappers import DraftingLatency, ScaledLatency
from sim.user.objects import ClassKind, UserClass, UserObject, load_class, shown

if TYPE_CHECKING:
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
    hardware: Hardware | None,
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
        from sim.latency.kinds.recorded import RecordedLatency

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
    if isinstance(config, RooflineLatencyConfig | ProfileLatencyConfig | LayersLatencyConfig):
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
    hardware: Hardware | None,
    num_drafts: int,
) -> LatencyModel:
    from sim.latency.kinds.roofline import RooflineLatency

    if model is None:
        raise _lacks(config, "model")
    if hardware is None:
        raise _lacks(config, "hardware")
    model.check_tp(config.tp)
    return RooflineLatency(model, hardware, config, num_drafts)


LATENCY = ClassKind("latency model", "LatencySetting", {"step_ns": "step"})
_KEY: KeyPath = ("latency",)
# An hour: far above any real step, and low enough that no run of steps overflows 64-bit ns.
_MAX_STEP_NS = 3_600 * 10**9


class LatencySetting(NamedTuple):
    """What the constructor of a user's latency model is given; each server has its own model.

    Attributes:
        model: shapes of the served model; None: the scenario names none.
        hardware: the accelerator; None: the scenario names none.
        folder: the scenario's folder, for files that the model reads.
        server: the server whose steps are timed.
    """

    model: "ModelShape | None"
    hardware: Hardware | None
    folder: Path
    server: ServedBy


class GuardedLatency:
    """A user's latency model; raises InputError where it raises or gives no time.

    Attributes:
        foresees: the model has `decode_run_ns`, or says by deriving from `StepLatency` that a
            step's time depends on the step alone. Else no step may be asked for in advance.
        depends_on_step_alone: it derives from `StepLatency`.
        source: see `latency_source`.
    """

    def __init__(self, user: UserObject) -> None:
        self._user = user
        self.foresees = user.has("decode_run_ns")
        own = getattr(type(user.instance), "decode_run_ns", None)
        self._goes_by_step = own in {None, StepLatency.decode_run_ns}
        self.depends_on_step_alone = own is StepLatency.decode_run_ns
        self._consumes = user.has("consume")
        source = user.get("source")
        self.source = source if isinstance(source, str) else None

    def step_ns(self, step: StepFeatures) -> StepTime:
        time = self._user.call("step_ns", step)
        if not isinstance(time, tuple) or len(time) != 2:
            raise self._user.returned("step_ns", f"{shown(time)}, not (device_ns, host_ns)")
        device_ns, host_ns = time
        if type(device_ns) is not int or type(host_ns) is not int:
            raise self._user.returned("step_ns", f"{shown(time)}, not two whole numbers of ns")
        if not (1 <= device_ns <= _MAX_STEP_NS and 0 <= host_ns <= _MAX_STEP_NS):
            raise self._user.returned("step_ns", f"{shown(time)}, not times up to an hour")
        return StepTime(device_ns, host_ns)

    def decode_run_ns(self, first: StepFeatures, num_steps: int) -> tuple[Int64, Int64]:
        if self._goes_by_step:
            return asked_step_by_step(self.step_ns, first, num_steps)
        run = self._user.call("decode_run_ns", first, num_steps)
        if not isinstance(run, tuple) or len(run) != 2 or not _are_times(run, num_steps):
            raise self._user.returned(
                "decode_run_ns", f"no two int64 arrays of 1 to {num_steps} times in ns"
            )
        return run

    def consume(self, first: StepFeatures, num_steps: int) -> None:
        if self._consumes:
            self._user.call("consume", first, num_steps)


def load_user_latency(named: UserClass, folder: Path) -> Callable[[LatencySetting], GuardedLatency]:
    """Load the class; returns what makes the model of one server.

    Raises InputError: the module or class does not exist, or takes other settings.
    """
    loaded = load_class(named, LATENCY, key=_KEY, folder=folder)
    return lambda setting: GuardedLatency(loaded.make(setting))


def _are_times(run: tuple[Any, Any], num_steps: int) -> bool:
    for times, least in zip(run, (1, 0), strict=True):
        if not isinstance(times, np.ndarray) or times.dtype != np.int64 or times.ndim != 1:
            return False
        if not 1 <= len(times) <= num_steps or len(times) != len(run[0]):
            return False
        if times.min() < least or times.max() > _MAX_STEP_NS:
            return False
    return True
