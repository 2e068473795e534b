"""The part of a run that metrics are about, if its beginning and its end are left out."""

from dataclasses import dataclass, replace

import numpy as np

from sim.core.arrays import Int64
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.runlog import RunLog


@dataclass(frozen=True, slots=True)
class Edge:
    """What is left out at one end of a run: a time in ns, or a number of requests."""

    duration_ns: int | None = None
    num_requests: int | None = None


def with_window(log: RunLog, warmup: Edge | None, cooldown: Edge | None) -> RunLog:
    """The log with the window between warm-up and cool-down; the log itself if there is neither.

    The warm-up begins with the first arrival, the cool-down ends with the last one: the time after
    it, in which the servers run empty, is never part of a window. A window begins with an arrival
    and ends just before one, so it has as many requests as gaps between them.
    """
    if warmup is None and cooldown is None:
        return log
    arrival_ns = np.sort(log.requests.arrival_ns[log.requests.warm_up == 0])
    first, last = _first(arrival_ns, warmup), _end(arrival_ns, cooldown)
    if first >= last or arrival_ns[first] == arrival_ns[last]:
        span_s = float(np.ptp(arrival_ns)) / NS_PER_S if len(arrival_ns) else 0.0
        number = len(arrival_ns)
        reason = f"leaves no request to measure: {number:,} requests arrive within {span_s:,.6g} s"
        raise InputError(reason, key=("cooldown" if warmup is None else "warmup",))
    return replace(log, window_ns=(int(arrival_ns[first]), int(arrival_ns[last])))


def _first(arrival_ns: Int64, warmup: Edge | None) -> int:
    """The first arrival of the window."""
    if warmup is None or not len(arrival_ns):
        return 0
    if warmup.num_requests is not None:
        return warmup.num_requests
    return int(np.searchsorted(arrival_ns, arrival_ns[0] + (warmup.duration_ns or 0)))


def _end(arrival_ns: Int64, cooldown: Edge | None) -> int:
    """The arrival that ends the window."""
    if cooldown is None or not len(arrival_ns):
        return len(arrival_ns) - 1
    if cooldown.num_requests is not None:
        return len(arrival_ns) - max(cooldown.num_requests, 1)
    return int(np.searchsorted(arrival_ns, arrival_ns[-1] - (cooldown.duration_ns or 0)))
