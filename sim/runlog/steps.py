"""One entry of the log: a run of steps of one composition."""

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


class StepRun(NamedTuple):
    """One step, or several decode steps with the same rows one after the other.

    Attributes:
        replica: which server.
        first_step: number of the first step on that server, from 0.
        batch: the first step's batch.
        state: the server's state after the first step was decided.
        decided_ns, start_ns, end_ns, host_ns: when the first step was decided, its start and end
            on the device, its host time.
        further: the steps after it, or None.
    """

    replica: int
    first_step: int
    batch: Batch
    state: StepState
    decided_ns: int
    start_ns: int
    end_ns: int
    host_ns: int
    further: FurtherSteps | None
