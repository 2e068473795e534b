"""Piecewise constant functions of time: queue depths, KV use and token rates of all replicas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from sim.core.arrays import Float64, Int64
from sim.runlog import NOT_YET_NS, RequestColumns, StepColumns

MAX_POINTS = 2_000
_NEVER: Int64 = np.zeros(0, dtype=np.int64)
NEVER_GONE: Mapping[int, Int64] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class StepSeries:
    """A function of time: `value[i]` from `t_ns[i]` until `t_ns[i + 1]`, and 0 before `t_ns[0]`.

    The last value has no end. `t_ns` increases strictly. Both have shape [num_points].
    """

    t_ns: Int64
    value: Float64

    def means(self, edges_ns: Float64) -> Float64:
        """Time-weighted means between neighbouring edges, which increase strictly."""
        if not len(self.t_ns):
            return np.zeros(len(edges_ns) - 1)
        held_ns = np.diff(self.t_ns, append=max(self.t_ns[-1], int(edges_ns[-1])) + 1)
        corners_ns = np.append(self.t_ns, self.t_ns[-1] + held_ns[-1])
        area = np.concatenate(([0.0], np.cumsum(self.value * held_ns)))
        return np.diff(np.interp(edges_ns, corners_ns, area)) / np.diff(edges_ns)

    def thinned(self, end_ns: int, max_points: int = MAX_POINTS) -> "StepSeries":
        """At most `max_points` points up to `end_ns`: means over equal windows, if needed."""
        if len(self.t_ns) <= max_points or end_ns <= self.t_ns[0]:
            return self
        edges_ns = np.linspace(self.t_ns[0], end_ns, max_points + 1)
        return StepSeries(edges_ns[:-1].astype(np.int64), self.means(edges_ns))


def from_changes(t_ns: Int64, change: Int64) -> StepSeries:
    """The running sum of `change[i]` at `t_ns[i]`; the times may be in any order."""
    order = np.argsort(t_ns, kind="stable")
    t_ns, level = t_ns[order], np.cumsum(change[order])
    last_of_its_time = np.append(t_ns[1:] != t_ns[:-1], np.ones(min(1, len(t_ns)), dtype=np.bool_))
    return StepSeries(t_ns[last_of_its_time], level[last_of_its_time].astype(np.float64))


def gauge(
    steps: StepColumns, column: Int64, gone_ns: Mapping[int, Int64] = NEVER_GONE
) -> StepSeries:
    """A logged size over time, summed over replicas. A value lasts until the replica's next row.

    `gone_ns` says when replicas were stopped, by their numbers in `steps`: then the size becomes 0.
    """
    times, changes = [], []
    for replica in np.unique(steps.replica):
        mine = steps.replica == replica
        stops_ns = gone_ns.get(int(replica), _NEVER)
        at_ns = np.concatenate((steps.t_start_ns[mine], stops_ns))
        size = np.concatenate((column[mine], np.zeros_like(stops_ns)))
        order = np.argsort(at_ns, kind="stable")
        times.append(at_ns[order])
        changes.append(np.diff(size[order], prepend=0))
    return _merged(times, changes)


def occupancy(steps: StepColumns, requests: RequestColumns, column: Int64) -> StepSeries:
    """Like `gauge`, but 0 while a replica has no requests, because an idle replica logs nothing."""
    times, changes = [], []
    for replica in np.unique(steps.replica):
        mine = steps.replica == replica
        ends_ns = steps.t_end_ns[mine]
        idle = num_in_flight(requests, int(replica), ends_ns) == 0
        # If the replica is idle at the end of a row, a point of size 0 follows that row.
        at_ns = np.concatenate((steps.t_start_ns[mine], ends_ns[idle]))
        size = np.concatenate((column[mine], np.zeros(int(idle.sum()), dtype=np.int64)))
        rank = np.concatenate((np.arange(len(ends_ns)) * 2, np.flatnonzero(idle) * 2 + 1))
        order = np.argsort(rank, kind="stable")
        times.append(at_ns[order])
        changes.append(np.diff(size[order], prepend=0))
    return _merged(times, changes)


def num_in_flight(requests: RequestColumns, replica: int, at_ns: Int64) -> Int64:
    """How many requests of a replica have arrived and not finished at each of these times.

    Requests that were never in a batch do not count.
    """
    mine = (requests.replica == replica) & (requests.scheduled_ns != NOT_YET_NS)
    finish_ns = requests.finish_ns[mine]
    finish_ns = np.sort(finish_ns[finish_ns != NOT_YET_NS])
    arrived = np.searchsorted(np.sort(requests.arrival_ns[mine]), at_ns, side="right")
    return np.asarray(arrived - np.searchsorted(finish_ns, at_ns, side="right"), dtype=np.int64)


def between(from_ns: Int64, until_ns: Int64) -> StepSeries:
    """How many requests are between two events. One that lacks either event does not count."""
    both = (from_ns != NOT_YET_NS) & (until_ns != NOT_YET_NS)
    ones = np.ones(int(both.sum()), dtype=np.int64)
    return _merged([from_ns[both], until_ns[both]], [ones, -ones])


def added(parts: Iterable[StepSeries]) -> StepSeries:
    """The sum of functions of time with whole values."""
    parts = list(parts)
    changes = [np.diff(part.value, prepend=0).astype(np.int64) for part in parts]
    return _merged([part.t_ns for part in parts], changes)


def tokens_per_s(steps: StepColumns, num_tokens: Int64, edges_ns: Float64) -> Float64:
    """Tokens per second between the edges. A row's tokens are spread evenly over its duration."""
    total = np.zeros(len(edges_ns))
    for replica in np.unique(steps.replica):
        mine = steps.replica == replica
        corners_ns = np.column_stack((steps.t_start_ns[mine], steps.t_end_ns[mine])).ravel()
        done = np.cumsum(num_tokens[mine])
        before_and_after = np.column_stack((done - num_tokens[mine], done)).ravel()
        # With overlap a step may start before the previous one ends; interp needs rising times.
        total += np.interp(edges_ns, np.maximum.accumulate(corners_ns), before_and_after)
    return np.diff(total) / np.diff(edges_ns) * 1e9


def _merged(times: list[Int64], changes: list[Int64]) -> StepSeries:
    nothing = np.zeros(0, dtype=np.int64)
    return from_changes(np.concatenate([nothing, *times]), np.concatenate([nothing, *changes]))
