"""The device time of each single step of a run log, fast-forwarded steps included."""

from typing import NamedTuple

import numpy as np

from sim.core.arrays import Bools, Int64
from sim.runlog.columns import RunLog


class SingleSteps(NamedTuple):
    """Steps one by one, in order of launch within a server; arrays of shape [num_steps].

    Attributes:
        replica: as in `StepColumns`.
        t_start_ns, t_end_ns: when the device began and ended it.
        num_prefill_tokens, num_decode_tokens: what it computed.
    """

    replica: Int64
    t_start_ns: Int64
    t_end_ns: Int64
    num_prefill_tokens: Int64
    num_decode_tokens: Int64

    def where(self, mask: Bools) -> "SingleSteps":
        """The steps where `mask` is true."""
        return SingleSteps(*(column[mask] for column in self))


def single_steps(log: RunLog) -> SingleSteps:
    """The steps of a log that has `further` times, or no fast-forwarded steps."""
    steps = log.steps
    num_steps = steps.num_steps
    last = np.cumsum(num_steps) - 1
    first = last - num_steps + 1
    is_further = np.ones(int(num_steps.sum()), dtype=np.bool_)
    is_further[first] = False
    waited_ns, device_ns = np.zeros((2, len(is_further)), dtype=np.int64)
    if log.further is not None:
        waited_ns[is_further] = log.further.waited_ns.widened()
        device_ns[is_further] = log.further.device_ns.widened()
    # Counted back from the end of each row, which is known.
    passed_ns = np.cumsum(waited_ns + device_ns)
    t_end_ns = passed_ns + np.repeat(steps.t_end_ns - passed_ns[last], num_steps)
    t_start_ns = t_end_ns - device_ns
    t_start_ns[first] = steps.t_start_ns
    num_prefill_tokens = np.zeros_like(t_end_ns)
    num_prefill_tokens[first] = steps.num_prefill_tokens
    return SingleSteps(
        np.repeat(steps.replica, num_steps),
        t_start_ns,
        t_end_ns,
        num_prefill_tokens,
        np.repeat(steps.num_decode_rows, num_steps),
    )
