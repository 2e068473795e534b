"""A launch on its way: one step, and the steps that followed it without a decision."""

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import Batch
from sim.des.timeline import Steps
from sim.engine.fast_forward import DecodeRun
from sim.engine.records import StepState
from sim.latency.features import StepFeatures
from sim.latency.model import StepTime
from sim.runlog.steps import StepRun

Int64 = NDArray[np.int64]


class Flight:
    """Times and facts of a launch.

    Attributes:
        batch, features: of the first step.
        decided_ns: when the first step was decided.
        ready_ns: when the host has prepared the first step.
        start_ns: when the device starts it.
        end_ns: when the device ends the last step.
    """

    def __init__(
        self,
        batch: Batch,
        features: StepFeatures,
        state: StepState,
        *,
        decided_ns: int,
        device_free_ns: int,
        time: StepTime,
    ) -> None:
        self.batch = batch
        self.features = features
        self.decided_ns = decided_ns
        self.ready_ns = decided_ns + time.host_ns
        self.start_ns = max(self.ready_ns, device_free_ns)
        self.end_ns = self.start_ns + time.device_ns
        self._first_end_ns = self.end_ns
        self._state = state
        self._host_ns = time.host_ns
        self._steps: Steps | None = None
        self._further: DecodeRun | None = None
        self._further_state = state

    def extend(self, steps: Steps, further: DecodeRun, num_steps: int, state: StepState) -> None:
        """The first `num_steps` of these steps were launched too; `state` is that before them."""
        self._further_state = state
        self._steps = Steps(*(times[:num_steps] for times in steps))
        self._further = further
        self.end_ns = int(steps.ends_ns[num_steps - 1])

    def as_run(self, replica: int, first_step: int) -> StepRun:
        """The log's entry."""
        return StepRun(
            replica=replica,
            first_step=first_step,
            batch=self.batch,
            state=self._state,
            decided_ns=self._with(self.decided_ns, "decided_ns"),
            starts_ns=self._with(self.start_ns, "starts_ns"),
            ends_ns=self._with(self._first_end_ns, "ends_ns"),
            host_ns=self._with(self._host_ns, "host_ns"),
            further=self._further,
            further_state=self._further_state,
        )

    def _with(self, first: int, name: str) -> Int64:
        """A column of the first step and those after it."""
        if self._steps is None:
            return np.array([first], dtype=np.int64)
        return np.concatenate([[first], getattr(self._steps, name)])
