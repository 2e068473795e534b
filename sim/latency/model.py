"""How long a step takes: the seam, and the linear model."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.latency.features import StepFeatures


class StepTime(NamedTuple):
    """One step's device time and host time, in ns. Overlap scheduling hides the smaller one."""

    device_ns: int
    host_ns: int


class LatencyModel(Protocol):
    """Maps a step's features to its duration. Returns whole ns, at least 1 of device time."""

    def step_ns(self, step: StepFeatures) -> StepTime: ...

    def decode_run_ns(
        self, first: StepFeatures, num_steps: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Device and host time of `num_steps` decode steps of one composition.

        Step i is `first` with every decode row's context grown by i tokens. Element i of each
        array, shape [num_steps], equals what `step_ns` gives for step i, to the bit.
        """
        ...
