"""How many requests a server ran at a time, where its results show that more had to wait."""

from collections.abc import Sequence

import numpy as np


from sim.core.arrays import Float64
from sim.workload.results.model import ImportedRequest

# Requests wait for a seat if as many seats are taken for most of the time in which some wait.
_SHARE_FULL = 0.7
# Requests that finish and begin in the same step leave a seat empty in the stamps.
_NEARLY = 0.97
_FEWEST_SEATS = 4
# A wait is one for a seat only if it is longer than so many gaps between tokens.
_GAPS = 20


def seats_shown(requests: Sequence[ImportedRequest], until_ns: float = np.inf) -> int | None:
    """The largest number of requests that ran at a time, if more had to wait.

    None: nobody waited, or for something else than a seat.

    Args:
        requests: all that arrived up to a time.
        until_ns: that time.
    """
    stamps = np.array([
        (each.arrival_ns, each.first_token_ns, each.finish_ns, max(1, (each.output_tokens or 1) - 1))
        for each in requests
        if each.first_token_ns is not None and each.finish_ns is not None
    ])  # fmt: skip
    if len(stamps) < 2 * _FEWEST_SEATS:
        return None
    arrival, first, finish, gaps = stamps.T
    patience = _GAPS * float(np.median((finish - first) / gaps))
    times = np.unique(np.minimum(np.concatenate((arrival, first, finish)), until_ns))
    middle, length = (times[1:] + times[:-1]) / 2, np.diff(times)
    running = _between(first, finish, middle)
    late = first - arrival > patience
    waiting = _between(arrival[late] + patience, first[late], middle)
    seats = int(running.max())
    waited = length[waiting > 0].sum()
    full = length[(waiting > 0) & (running >= _NEARLY * seats)].sum()
    if seats < _FEWEST_SEATS or not waited or full < _SHARE_FULL * waited:
        return None
    return seats


def _between(begin: Float64, end: Float64, at: Float64) -> Float64:
    """How many of the spans each time is in."""
    return np.searchsorted(np.sort(begin), at) - np.searchsorted(np.sort(end), at)
