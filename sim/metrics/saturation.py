"""Whether the load exceeded the servers' capacity; and how long requests waited."""

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.request import Status
from sim.core.units import NS_PER_MS
from sim.metrics.latencies import status_mask
from sim.metrics.series import from_changes
from sim.runlog import NOT_YET_NS, RunLog

_NUM_SLICES = 20
_FIFTH = _NUM_SLICES // 5
_MIN_REQUESTS = 40
# Student's t, one-sided, at 0.5 % and 18 degrees of freedom.
_MIN_SLOPE_T = 2.88
_MIN_GROWTH = 2.0


def is_saturated(log: RunLog) -> bool | None:
    """Whether the queue grows for as long as requests arrive.

    The depth of a stable queue fluctuates about a level. Beyond capacity the depth grows linearly
    with time, under every policy. Waits are no such sign: the request that waits longest, because
    others overtake it, may be the first that arrived. The time from the first to the last arrival
    is cut into 20 equal slices, because depths close in time are correlated. The run is saturated
    if the mean depths of the slices meet three conditions:

    1. The least-squares slope is positive, at a significance of 0.5 %.
    2. The mean over the last fifth is more than twice the mean over the first fifth.
    3. In the last fifth, the mean wait by Little's law, depth / arrival rate, exceeds the run's
       median time from first batch to first token. Clients do not notice a smaller queue.

    If servers are disaggregated, a request counts as waiting for all of its TTFT but its
    prefill: it may wait for either server, and for the links. Condition 3 is about the prefill.

    Returns:
        None if that cannot be decided: fewer than 40 requests were not rejected, or all of these
        arrived at once.
    """
    measured = log.measured()
    requests = measured.requests
    arrival_ns = requests.arrival_ns[~status_mask(requests, Status.REJECTED)]
    if len(arrival_ns) < _MIN_REQUESTS or arrival_ns.min() == arrival_ns.max():
        return None
    # Requests of a warm-up may still wait in the window.
    queued = measured if log.window_ns is None else log
    taken = ~status_mask(queued.requests, Status.REJECTED)
    queued_ns = queued.requests.arrival_ns[taken]
    ones = np.ones(len(queued_ns), dtype=np.int64)
    depth = from_changes(
        np.concatenate((queued_ns, queued_ns + _waits_ns(queued)[taken])),
        np.concatenate((ones, -ones)),
    )
    depths = depth.means(np.linspace(arrival_ns.min(), arrival_ns.max(), _NUM_SLICES + 1))
    early, late = depths[:_FIFTH].mean(), depths[-_FIFTH:].mean()
    between_arrivals_ns = (arrival_ns.max() - arrival_ns.min()) / len(arrival_ns)
    return bool(
        _slope_t(depths) > _MIN_SLOPE_T
        and late > _MIN_GROWTH * early
        and late * between_arrivals_ns > _median_prefill_ns(measured)
    )


def _waits_ns(log: RunLog) -> Int64:
    """What each request spent in queues up to its first token; shape [num_requests]."""
    if log.handovers is None:
        return queue_times_ns(log)
    requests = log.requests
    end_ns = np.where(requests.finish_ns != NOT_YET_NS, requests.finish_ns, log_end_ns(log))
    answered = requests.first_token_ns != NOT_YET_NS
    first_ns = np.where(answered, requests.first_token_ns, end_ns)
    prefilled, prefill_ns = _prefills_ns(log)
    waits_ns: Int64 = first_ns - requests.arrival_ns - np.where(prefilled, prefill_ns, 0)
    return waits_ns


def _prefills_ns(log: RunLog) -> tuple[Bools, Int64]:
    """Which requests have had their prefill, and the time from first batch to its end."""
    requests = log.requests
    ends_ns = requests.first_token_ns if log.handovers is None else log.handovers.computed_ns
    begun = (ends_ns != NOT_YET_NS) & (requests.scheduled_ns != NOT_YET_NS)
    return begun, ends_ns - requests.scheduled_ns


def queue_times_ns(log: RunLog) -> Int64:
    """How long each request waited for its first batch; shape [num_requests].

    A request that was in no batch waited until it was given up, or else until the log's end.
    """
    requests = log.requests
    left_ns = np.where(requests.scheduled_ns != NOT_YET_NS, requests.scheduled_ns, log_end_ns(log))
    gone = (requests.scheduled_ns == NOT_YET_NS) & (requests.finish_ns != NOT_YET_NS)
    return np.where(gone, requests.finish_ns, left_ns) - requests.arrival_ns


def max_wait_ms(wait_ns: Int64, mask: Bools) -> float | None:
    """The longest wait of the requests in `mask`; None if there are none."""
    waits_ns = wait_ns[mask]
    return int(waits_ns.max()) / NS_PER_MS if len(waits_ns) else None


def log_end_ns(log: RunLog) -> int:
    """The last time stamp of the log, 0 if it is empty."""
    stamps = (log.requests.arrival_ns, log.requests.finish_ns, log.steps.t_end_ns)
    return max((int(column.max()) for column in stamps if len(column)), default=0)


def _slope_t(values: Float64) -> float:
    """The slope of the values against their index, in standard errors."""
    index = np.arange(len(values)) - (len(values) - 1) / 2
    slope = (index * values).sum() / (index**2).sum()
    residual = values - values.mean() - slope * index
    error = np.sqrt((residual**2).sum() / (len(values) - 2) / (index**2).sum())
    if error == 0:
        return float(np.sign(slope) * np.inf) if slope else 0.0
    return float(slope / error)


def _median_prefill_ns(log: RunLog) -> float:
    begun, prefill_ns = _prefills_ns(log)
    return float(np.median(prefill_ns[begun])) if begun.any() else 0.0
