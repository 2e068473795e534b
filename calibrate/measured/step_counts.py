"""In how many steps of a simulation each request decoded, and with how many others.

As long as decisions stay the same, each of these steps adds its host time to the request's time
from the first token to the last.
"""

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.runlog import RunLog, StepColumns


def decode_steps(log: RunLog) -> tuple[Float64, Float64]:
    """The number of steps from each request's first token to its finish, and the rows in them.

    Both have shape [num_requests], in the log's order; 0 for a request that did not finish.
    """
    requests = log.requests
    found = np.zeros((2, len(requests.rid)))
    for replica in np.unique(requests.replica):
        mine = np.flatnonzero(requests.replica == replica)
        first_ns, finish_ns = requests.first_token_ns[mine], requests.finish_ns[mine]
        before, after = (_up_to(log.steps, int(replica), t) for t in (first_ns, finish_ns))
        found[:, mine] = np.maximum(after - before, 0.0)
    return found[0], found[1]


def mean_rows(steps: StepColumns) -> float:
    """Mean number of requests in a step."""
    return float((_rows(steps) * steps.num_steps).sum() / steps.num_steps.sum())


def mean_step_ns(steps: StepColumns) -> float:
    """Mean of a step's device time plus host time."""
    return float((steps.device_ns + steps.host_ns).sum() / steps.num_steps.sum())


def _rows(steps: StepColumns) -> Int64:
    rows: Int64 = steps.num_decode_rows + steps.num_prefill_rows
    return rows


def _up_to(steps: StepColumns, replica: int, at_ns: Int64) -> Float64:
    """Steps and rows that a replica has finished by each time; shape [2, num_times].

    Steps that are logged together count as equally long.
    """
    mine = steps.replica == replica
    corners_ns = np.column_stack((steps.t_start_ns[mine], steps.t_end_ns[mine])).ravel()
    # With overlap a step may start before the one before has ended; times must ascend.
    corners_ns = np.maximum.accumulate(corners_ns)
    num_steps = steps.num_steps[mine]
    return np.stack([
        np.interp(at_ns, corners_ns, np.repeat(np.cumsum(amount), 2) - _first_of_two(amount))
        if len(amount)
        else np.zeros(len(at_ns))
        for amount in (num_steps, num_steps * _rows(steps)[mine])
    ])  # fmt: skip


def _first_of_two(amount: Int64) -> Int64:
    """Each amount followed by a 0, for the two ends of a run of steps."""
    return np.column_stack((amount, np.zeros_like(amount))).ravel()
