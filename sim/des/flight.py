"""A launch on its way: one step, and the steps that followed it without a decision."""

from sim.core.batch import Batch
from sim.des.timeline import Steps
from sim.engine.fast_forward import DecodeRun
from sim.engine.records import StepState
from sim.latency.features import StepFeatures
from sim.latency.model import StepTime
from sim.runlog.steps import FurtherSteps, StepRun


class Flight:
    """Times and facts of a launch.

    Attributes:
        batch, features: of the first step.
        num_steps: taken so far.
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
        self.num_steps = 1
        self.decided_ns = decided_ns
        self.ready_ns = decided_ns + time.host_ns
        self.start_ns = max(self.ready_ns, device_free_ns)
        self.end_ns = self._first_end_ns = self.start_ns + time.device_ns
        self._state = state
        self._host_ns = time.host_ns
        self._further: FurtherSteps | None = None

    def extend(self, steps: Steps, run: DecodeRun, state: StepState) -> None:
        """All these steps were launched too; `state` is that before them."""
        num_steps = run.num_steps
        self._further = FurtherSteps(
            steps.decided_ns[:num_steps],
            steps.starts_ns[:num_steps],
            steps.ends_ns[:num_steps],
            steps.host_ns[:num_steps],
            run,
            state,
        )
        self.num_steps += num_steps
        self.end_ns = int(steps.ends_ns[num_steps - 1])

    def as_run(self, replica: int, first_step: int) -> StepRun:
        """The log's entry."""
        return StepRun(
            replica,
            first_step,
            self.batch,
            self._state,
            self.decided_ns,
            self.start_ns,
            self._first_end_ns,
            self._host_ns,
            self._further,
        )
