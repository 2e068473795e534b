"""A latency model of the user's own: `latency: module:Class` (docs/how-to/plug-in.md#latency)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import KeyPath
from sim.latency.build import ServedBy
from sim.latency.features import StepFeatures
from sim.latency.hardware import Hardware
from sim.latency.model import StepLatency, StepTime, asked_step_by_step
from sim.latency.shapes import ModelShape
from sim.user.named_class import UserClass
from sim.user.objects import ClassKind, UserObject, load_class, shown

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

    model: ModelShape | None
    hardware: Hardware | None
    folder: Path
    server: ServedBy


class GuardedLatency:
    """A user's latency model; raises InputError where it raises or gives no time.

    Attributes:
        foresees: the model has `decode_run_ns`, or says by deriving from `StepLatency` that a
            step's time depends on the step alone. Else no step may be asked for in advance.
        source: see `latency_source`.
    """

    def __init__(self, user: UserObject) -> None:
        self._user = user
        self.foresees = user.has("decode_run_ns")
        own = getattr(type(user.instance), "decode_run_ns", None)
        self._goes_by_step = own in {None, StepLatency.decode_run_ns}
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
            raise self._user.returned("step_ns", f"{shown(time)}, not 1 and 0 ns to an hour")
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

    Raises:
        InputError: the module or class does not exist, or takes other settings.
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
