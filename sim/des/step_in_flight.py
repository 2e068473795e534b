"""A step between its launch and its result, and the steps that follow it without a decision."""

from sim.core.batch import Batch
from sim.des.timeline import UpcomingSteps
from sim.engine.fast_forward import DecodeRun
from sim.engine.records import StepState
from sim.latency.features import StepFeatures
from sim.latency.model import StepTime
from sim.runlog.steps import FurtherSteps, StepRun


class StepInFlight(StepRun):
    """The log's entry of a launch, while it is made.

    Attributes:
        features: of the first step.
    """

    def __init__(
        self,
        replica: int,
        batch: Batch,
        state: StepState,
        features: StepFeatures,
        *,
        decided_ns: int,
        device_free_ns: int,
        time: StepTime,
    ) -> None:
        start_ns = max(decided_ns + time.host_ns, device_free_ns)
        super().__init__(
            replica,
            batch,
            state,
            decided_ns=decided_ns,
            host_ns=time.host_ns,
            start_ns=start_ns,
            first_end_ns=start_ns + time.device_ns,
        )
        self.features = features

    @property
    def ready_ns(self) -> int:
        """When the host has prepared the first step."""
        return self.decided_ns + self.host_ns

    def extend(self, steps: UpcomingSteps, run: DecodeRun, state: StepState) -> None:
        """The steps of `run` were launched too; `state` is the server's before them."""
        num_steps = run.num_steps
        self.further = FurtherSteps(
            steps.decided_ns[:num_steps],
            steps.starts_ns[:num_steps],
            steps.ends_ns[:num_steps],
            steps.host_ns[:num_steps],
            run,
            state,
        )
