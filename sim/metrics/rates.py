"""Durations, rates and shares of a run or a window; waits, and whether the load was too much."""

from typing import Any, NamedTuple

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.request import Status
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.metrics.latencies import finished_mask, request_latencies, status_mask
from sim.metrics.series import from_changes
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog, StepColumns

_MIN_WINDOWS, _MAX_WINDOWS, _REQUESTS_PER_WINDOW = 8, 40, 50


def ratio(amount: float, base: float | None) -> float | None:
    """`amount / base`; None if the base is 0 or None."""
    return amount / base if base else None


def duration_s(requests: RequestColumns, finished: Bools) -> float | None:
    """Seconds from the first arrival to the last finish; None if no request finished."""
    if not finished.any():
        return None
    return int(requests.finish_ns[finished].max() - requests.arrival_ns.min()) / NS_PER_S


def request_rate(
    requests: RequestColumns, window_ns: tuple[int, int] | None = None
) -> float | None:
    """Requests per second from the first arrival to the last; None if all arrived at once.

    The first request is not counted: n requests have n - 1 gaps between them. With a window, it is
    the requests that arrived in it over its length.
    """
    if not len(requests.rid):
        return None
    if window_ns is not None:
        return ratio(len(requests.rid), (window_ns[1] - window_ns[0]) / NS_PER_S)
    span_ns = int(requests.arrival_ns.max() - requests.arrival_ns.min())
    return ratio(len(requests.rid) - 1, span_ns / NS_PER_S)


def admitted_mask(requests: RequestColumns) -> Bools:
    """True where a request was in a batch at least once; shape [num_requests].

    A rejected one may have been in a batch without its prompt.
    """
    admitted: Bools = requests.scheduled_ns != NOT_YET_NS
    return admitted & ~status_mask(requests, Status.REJECTED)


def hit_rate_pct(requests: RequestColumns, admitted: Bools) -> float | None:
    """Cached tokens / prompt tokens of these requests, in percent; None if there are none."""
    num_cached = int(requests.cached_tokens[admitted].sum())
    return ratio(100 * num_cached, int(requests.prompt_tokens[admitted].sum()))


def hit_rate_over_time(log: RunLog) -> tuple[Float64, Float64]:
    """The cache hit rate of the requests admitted in each of several equal windows of time.

    There is one window for every 50 requests, but at least 8 and at most 40. Windows without
    requests are left out.

    Returns the middles of the windows in ns and their hit rates in percent, both [num_windows].
    """
    admitted = admitted_mask(log.requests)
    at_ns = log.requests.scheduled_ns[admitted]
    if not len(at_ns):
        return np.zeros(0), np.zeros(0)
    num_windows = int(np.clip(len(at_ns) // _REQUESTS_PER_WINDOW, _MIN_WINDOWS, _MAX_WINDOWS))
    edges_ns = np.linspace(at_ns.min(), at_ns.max() + 1, num_windows + 1)
    cached, _ = np.histogram(at_ns, edges_ns, weights=log.requests.cached_tokens[admitted])
    prompt, _ = np.histogram(at_ns, edges_ns, weights=log.requests.prompt_tokens[admitted])
    middles_ns, some = (edges_ns[:-1] + edges_ns[1:]) / 2, prompt > 0
    return middles_ns[some], 100 * cached[some] / prompt[some]


def occupancy_metrics(steps: StepColumns) -> dict[str, Any]:
    """`mean_decode_rows`, `max_decode_rows`, `mean_kv_used_pct`, `max_queue_length`.

    The first two are over the steps with decode rows, the others are over all steps. Means are over
    steps, not over time. A value is None if there is no such step.
    """
    decodes = steps.num_decode_rows > 0
    rows, num_steps = steps.num_decode_rows[decodes], steps.num_steps[decodes]
    pool = steps.free_tokens + steps.evictable_tokens + steps.used_tokens
    num_used, num_all = int(steps.used_token_steps.sum()), int((pool * steps.num_steps).sum())
    return {
        "mean_decode_rows": ratio(int((rows * num_steps).sum()), int(num_steps.sum())),
        "max_decode_rows": int(rows.max()) if len(rows) else None,
        "mean_kv_used_pct": ratio(100 * num_used, num_all),
        "max_queue_length": int(steps.queue.max()) if len(steps.queue) else None,
    }


class RunRates(NamedTuple):
    """Amounts for each request, [num_requests].

    Attributes:
        in_system_s: how long all of them together were in the system.
        duration_s: what rates divide by; None if no request finished.
    """

    requests: RequestColumns
    finished: Bools
    input_tokens: Int64 | Float64
    output_tokens: Int64 | Float64
    in_system_s: float
    duration_s: float | None


def served(log: RunLog) -> RunRates:
    """What was done for the log's requests.

    Without a window, a request counts if it finished, and rates divide by the time from the first
    arrival to the last finish. In a window it does not matter when a request arrived: it counts as
    finished if it did so in the window, its prompt counts if its first token came in the window,
    and of its answer the share that was made in the window, if it is spread evenly from the first
    token to the last.
    """
    if log.window_ns is not None:
        return _served_within(log, *log.window_ns)
    requests = log.measured().requests
    finished = finished_mask(requests)
    latency_ms = request_latencies(requests).e2e_latency_ms[finished]
    return RunRates(
        requests,
        finished,
        np.where(finished, requests.prompt_tokens, 0),
        np.where(finished, requests.output_tokens, 0),
        float(latency_ms.sum()) * NS_PER_MS / NS_PER_S,
        duration_s(requests, finished),
    )


def _served_within(log: RunLog, begin_ns: int, end_ns: int) -> RunRates:
    requests = log.requests
    first_ns, finish_ns = requests.first_token_ns, requests.finish_ns
    ended = finish_ns != NOT_YET_NS
    begun = (first_ns != NOT_YET_NS) & (first_ns >= begin_ns) & (first_ns < end_ns)
    left_ns = np.where(ended, finish_ns, end_ns)
    stay_ns = _overlap_ns(requests.arrival_ns, left_ns, begin_ns, end_ns)
    # The first token comes at once, the others evenly after it.
    answered = (first_ns != NOT_YET_NS) & ended
    made_ns = _overlap_ns(first_ns, finish_ns, begin_ns, end_ns)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(finish_ns > first_ns, made_ns / (finish_ns - first_ns), 0.0)
    later = np.maximum(requests.output_tokens - 1, 0) * share
    return RunRates(
        requests,
        finished_mask(requests) & (finish_ns >= begin_ns) & (finish_ns < end_ns),
        np.where(begun, requests.prompt_tokens, 0),
        np.where(answered, later + (begun & (requests.output_tokens > 0)), 0.0),
        int(stay_ns.sum()) / NS_PER_S,
        (end_ns - begin_ns) / NS_PER_S,
    )


def _overlap_ns(from_ns: Int64, to_ns: Int64, begin_ns: int, end_ns: int) -> Int64:
    """How much of each time span lies in the window."""
    overlap_ns: Int64 = np.maximum(np.minimum(to_ns, end_ns) - np.maximum(from_ns, begin_ns), 0)
    return overlap_ns


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

    Returns None if that cannot be decided: fewer than 40 requests were not rejected, or all of
    these arrived at once.
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
