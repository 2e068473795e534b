"""One entry of the log: a run of steps of one composition."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.core.batch import Batch
from sim.engine.fast_forward import DecodeRun
from sim.engine.records import StepState

Int64 = NDArray[np.int64]


class StepRun(NamedTuple):
    """One step, or several decode steps with the same rows one after the other.

    Attributes:
        replica: which server.
        first_step: number of the first step on that server, from 0.
        batch: the first step's batch; each further step has one token more a row.
        state: the server's state after the first step was decided.
        decided_ns: when each step was decided; shape [num_steps].
        starts_ns, ends_ns: device start and end of each step; shape [num_steps].
        host_ns: host time of each step; shape [num_steps].
        further: state after each further step, shape [num_steps - 1]; None for a single step.
        further_state: the server's state before the further steps; under overlap a request may
            have arrived or finished since the first was decided. Equals `state` for a single step.
    """

    replica: int
    first_step: int
    batch: Batch
    state: StepState
    decided_ns: Int64
    starts_ns: Int64
    ends_ns: Int64
    host_ns: Int64
    further: DecodeRun | None
    further_state: StepState

    @property
    def num_steps(self) -> int:
        return len(self.ends_ns)

    @property
    def last_free_tokens(self) -> int:
        if self.further is None:
            return self.further_state.free_tokens
        return int(self.further.free_tokens[-1])

    @property
    def used_token_steps(self) -> int:
        """Used tokens of each step, summed over the run."""
        if self.further is None:
            return self.state.used_tokens
        not_evictable = self.further_state.free_tokens + self.further_state.used_tokens
        further = not_evictable * (self.num_steps - 1) - int(self.further.free_tokens.sum())
        return self.state.used_tokens + further
