"""What a log is told of steps: one step, or several decode steps of one composition in a row."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import Batch
from sim.engine.fast_forward import DecodeRun
from sim.engine.records import StepState

Int64 = NDArray[np.int64]


class FurtherSteps(NamedTuple):
    """Decode steps that followed one with the same rows, each with one token more a row.

    Attributes:
        decided_ns: when each was decided; shape [num_steps].
        starts_ns, ends_ns: device start and end of each; shape [num_steps].
        host_ns: host time of each; shape [num_steps].
        run: what they did to the pool and the ratio.
        state: the server's state before them; under overlap a request may have arrived or finished
            since the step they follow was decided.
    """

    decided_ns: Int64
    starts_ns: Int64
    ends_ns: Int64
    host_ns: Int64
    run: DecodeRun
    state: StepState


class StepRun:
    """One step, and the decode steps that followed it without a decision: one entry of the log.

    A simulated server makes it when it launches the step, and adds to it while the step runs.

    Attributes:
        replica: which server.
        first_step: number of the first step on that server, from 0; set when the result is taken
            in.
        batch, state: the first step's batch, and the server's state after it was decided.
        decided_ns, host_ns: when the first step was decided, and its host time.
        start_ns, first_end_ns: when the device starts and ends the first step.
        further: the steps after it, or None.
    """

    def __init__(
        self,
        replica: int,
        batch: Batch,
        state: StepState,
        *,
        decided_ns: int,
        host_ns: int,
        start_ns: int,
        first_end_ns: int,
    ) -> None:
        self.replica = replica
        self.first_step = 0
        self.batch = batch
        self.state = state
        self.decided_ns = decided_ns
        self.host_ns = host_ns
        self.start_ns = start_ns
        self.first_end_ns = first_end_ns
        self.further: FurtherSteps | None = None

    @property
    def ready_ns(self) -> int:
        """When the host has prepared the first step."""
        return self.decided_ns + self.host_ns

    @property
    def num_steps(self) -> int:
        return 1 if self.further is None else 1 + self.further.run.num_steps

    @property
    def end_ns(self) -> int:
        """When the device ends the last step."""
        return self.first_end_ns if self.further is None else int(self.further.ends_ns[-1])
