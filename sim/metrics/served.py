"""What the servers did for each request, for rates: all of it, or what they did in a window."""

from dataclasses import dataclass

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.rates import duration_s
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog


@dataclass(frozen=True, slots=True)
class Served:
    """Amounts for each request, [num_requests].

    Attributes:
        requests: the requests.
        finished: those that finished.
        input_tokens, output_tokens: the tokens that count.
        in_system_s: how long all of them together were in the system.
        duration_s: what rates divide by; None if no request finished.
    """

    requests: RequestColumns
    finished: Bools
    input_tokens: Int64 | Float64
    output_tokens: Int64 | Float64
    in_system_s: float
    duration_s: float | None


def served(log: RunLog) -> Served:
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
    return Served(
        requests,
        finished,
        np.where(finished, requests.prompt_tokens, 0),
        np.where(finished, requests.output_tokens, 0),
        float(latency_ms.sum()) * NS_PER_MS / NS_PER_S,
        duration_s(requests, finished),
    )


def _served_within(log: RunLog, begin_ns: int, end_ns: int) -> Served:
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
    return Served(
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
