"""Each request's latencies, computed from its time stamps."""

from typing import NamedTuple

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.request import Status
from sim.core.units import NS_PER_MS
from sim.runlog import NOT_YET_NS, RequestColumns


class RequestLatencies(NamedTuple):
    """Latencies in milliseconds, one for each request in the log's order; NaN where undefined.

    Attributes:
        ttft_ms: first token - arrival.
        tpot_ms: (e2e - ttft) / (output tokens - 1), for finished requests of two tokens or more.
        e2e_latency_ms: finish - arrival, for finished requests.
        queue_time_ms: time at which the request's first batch was decided - arrival.
    """

    ttft_ms: Float64
    tpot_ms: Float64
    e2e_latency_ms: Float64
    queue_time_ms: Float64


def finished_mask(requests: RequestColumns) -> Bools:
    """True where a request finished. Latency statistics are over these requests only."""
    return status_mask(requests, Status.FINISHED)


def status_mask(requests: RequestColumns, status: Status) -> Bools:
    """True where a request has this status; shape [num_requests]."""
    equal = map(status.value.__eq__, requests.status)
    return np.fromiter(equal, dtype=np.bool_, count=len(requests.status))


def request_latencies(requests: RequestColumns) -> RequestLatencies:
    finished = finished_mask(requests)
    never = np.full(len(finished), NOT_YET_NS, dtype=np.int64)
    finish_ns = np.where(finished, requests.finish_ns, never)
    num_gaps = np.where(requests.output_tokens > 1, requests.output_tokens - 1, 0)
    decode_ms = _elapsed_ms(requests.first_token_ns, finish_ns)
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot_ms = np.where(num_gaps > 0, decode_ms / num_gaps, np.nan)
    return RequestLatencies(
        ttft_ms=_elapsed_ms(requests.arrival_ns, requests.first_token_ns),
        tpot_ms=tpot_ms,
        e2e_latency_ms=_elapsed_ms(requests.arrival_ns, finish_ns),
        queue_time_ms=_elapsed_ms(requests.arrival_ns, requests.scheduled_ns),
    )


def _elapsed_ms(start_ns: Int64, end_ns: Int64) -> Float64:
    happened = (start_ns != NOT_YET_NS) & (end_ns != NOT_YET_NS)
    return np.where(happened, (end_ns - start_ns) / NS_PER_MS, np.nan)
