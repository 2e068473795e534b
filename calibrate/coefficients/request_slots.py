"""How many requests a server ran at a time, where its results show that more had to wait."""

from collections.abc import Sequence

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.workload.results.model import ImportedRequest

# Requests wait for a slot if about the same number of requests, the slots, run for at least this
# share of the time in which some wait.
_SHARE_FULL = 0.7
# The longest share of the time in which more requests than slots may seem to run.
_SHARE_OVER = 0.02
# Time stamps of requests may be a step apart where one takes the slot of another, so the number
# that runs may be off by this share of the slots.
_NEARLY = 0.03
# Fewer requests at a time are not taken for a limit of slots.
_FEWEST_SLOTS = 4
# A wait counts as one for a slot only if it is longer than this number of gaps between tokens.
_GAPS = 20


def slots_shown(requests: Sequence[ImportedRequest], until_ns: float = np.inf) -> int | None:
    """The number of requests that ran at a time while others had to wait.

    None: nobody waited, or for something else than a request slot.

    Args:
        requests: all that arrived up to a time.
        until_ns: that time.
    """
    stamps = np.array([
        (each.arrival_ns, each.first_token_ns, each.finish_ns, max(2, each.output_tokens or 0) - 1)
        for each in requests
        if each.first_token_ns is not None and each.finish_ns is not None
    ])  # fmt: skip
    if len(stamps) < 2 * _FEWEST_SLOTS:
        return None
    arrival, first, finish, gaps = stamps.T
    patience = _GAPS * float(np.median((finish - first) / gaps))
    times = np.unique(np.minimum(np.concatenate((arrival, first, finish)), until_ns))
    middle, length = (times[1:] + times[:-1]) / 2, np.diff(times)
    running = _between(first, finish, middle)
    late = first - arrival > patience
    waiting = _between(arrival[late] + patience, first[late], middle)
    waits = waiting > 0
    waited = length[waits].sum()
    if not waited:
        return None
    order = np.argsort(running[waits])
    share = np.cumsum(length[waits][order]) / waited
    slots = int(running[waits][order][np.searchsorted(share, 0.5)])
    slack = max(1.0, _NEARLY * slots)
    full = length[waits & (np.abs(running - slots) <= slack)].sum()
    over = length[running > slots + slack].sum()
    if slots < _FEWEST_SLOTS or full < _SHARE_FULL * waited or over > _SHARE_OVER * length.sum():
        return None
    return slots


def _between(begin: Float64, end: Float64, at: Float64) -> Int64:
    """For each time in `at`, how many of the spans from `begin` to `end` it is in."""
    begun, ended = np.searchsorted(np.sort(begin), at), np.searchsorted(np.sort(end), at)
    return (begun - ended).astype(np.int64)
