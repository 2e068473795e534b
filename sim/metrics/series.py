"""Piecewise constant functions of time, the window that metrics are about, and single steps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.errors import InputError
from sim.core.units import NS_PER_S
from sim.runlog import NOT_YET_NS, RequestColumns, RunLog, StepColumns


class Work(NamedTuple):
    """What servers computed, in order of launch: single steps, or runs of them; [num_parts].

    `device_ns` and the numbers of tokens are those of all steps of a part.
    """

    replica: Int64
    t_start_ns: Int64
    t_end_ns: Int64
    device_ns: Int64
    num_prefill_tokens: Int64
    num_decode_tokens: Int64

    def where(self, mask: Bools) -> "Work":
        return Work(*(column[mask] for column in self))


def work_around(log: RunLog, times_ns: Iterable[int]) -> Work:
    """The rows of a log that has `further` times, or no fast-forwarded steps.

    A row within which one of these times lies is taken step by step. There are few of them: one for
    each time and server.
    """
    steps, num_steps = log.steps, log.steps.num_steps
    t_start_ns, t_end_ns = steps.t_start_ns, steps.t_end_ns
    is_split = np.zeros(len(num_steps), dtype=np.bool_)
    for time_ns in times_ns:
        is_split |= (t_start_ns <= time_ns) & (time_ns <= t_end_ns)
    is_split &= num_steps > 1
    row = np.repeat(np.arange(len(num_steps)), np.where(is_split, num_steps, 1))
    work = Work(
        steps.replica[row],
        t_start_ns[row],
        t_end_ns[row],
        steps.device_ns[row],
        steps.num_prefill_tokens[row],
        (steps.num_decode_rows * num_steps)[row],
    )
    if log.further is None or not is_split.any():
        return work
    waited_ns, device_ns = (column.widened() for column in log.further)
    first_further = np.cumsum(num_steps - 1) - num_steps + 1
    for number in np.flatnonzero(is_split):
        first = int(np.searchsorted(row, number))
        stop, begin = first + int(num_steps[number]), int(first_further[number])
        part, further = slice(first + 1, stop), slice(begin, begin + stop - first - 1)
        # Counted back from the end of the row, which is known.
        left_ns = np.cumsum((waited_ns + device_ns)[further][::-1])[::-1]
        work.t_end_ns[first : stop - 1] -= left_ns
        work.t_start_ns[part] = work.t_end_ns[part] - device_ns[further]
        work.device_ns[first:stop] = work.t_end_ns[first:stop] - work.t_start_ns[first:stop]
        work.num_prefill_tokens[part] = 0
        work.num_decode_tokens[first:stop] = steps.num_decode_rows[number]
    return work


MAX_POINTS = 2_000
_NO_TIMES: Int64 = np.zeros(0, dtype=np.int64)
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
    """The running sum of `change[i]` at `t_ns[i]`; the times may be in any order.

    After the first time there are only those at which the sum changes, so that equal functions are
    equal to the last bit, in however many pieces they were logged.
    """
    order = np.argsort(t_ns, kind="stable")
    t_ns, level = t_ns[order], np.cumsum(change[order])
    last_of_its_time = np.append(t_ns[1:] != t_ns[:-1], np.ones(min(1, len(t_ns)), dtype=np.bool_))
    t_ns, level = t_ns[last_of_its_time], level[last_of_its_time]
    changes = np.append(np.ones(min(1, len(t_ns)), dtype=np.bool_), level[1:] != level[:-1])
    return StepSeries(t_ns[changes], level[changes].astype(np.float64))


def gauge(
    steps: StepColumns, column: Int64, gone_ns: Mapping[int, Int64] = NEVER_GONE
) -> StepSeries:
    """A logged size over time, summed over replicas. A value lasts until the replica's next row.

    `gone_ns` says when replicas were stopped, by their numbers in `steps`: then the size becomes 0.
    """
    times, changes = [], []
    for replica in np.unique(steps.replica):
        mine = steps.replica == replica
        stops_ns = gone_ns.get(int(replica), _NO_TIMES)
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


def tokens_per_s(steps: StepColumns | Work, num_tokens: Int64, edges_ns: Float64) -> Float64:
    """Tokens per second between the edges. A row's tokens are spread evenly over its duration."""
    total = np.zeros(len(edges_ns))
    for replica in np.unique(steps.replica):
        mine = steps.replica == replica
        corners_ns = np.column_stack((steps.t_start_ns[mine], steps.t_end_ns[mine])).ravel()
        done = np.cumsum(num_tokens[mine])
        before_and_after = np.column_stack((done - num_tokens[mine], done)).ravel()
        # With overlap a step may start before the previous one ends; interp needs rising times.
        total += np.interp(edges_ns, np.maximum.accumulate(corners_ns), before_and_after)
    return np.diff(total) / np.diff(edges_ns) * NS_PER_S


def _merged(times: list[Int64], changes: list[Int64]) -> StepSeries:
    # `_NO_TIMES` keeps the type where there is nothing to join.
    joined = (np.concatenate([_NO_TIMES, *parts]) for parts in (times, changes))
    return from_changes(*joined)


class Edge(NamedTuple):
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
    """The index of the window's first arrival, in order of time."""
    if warmup is None or not len(arrival_ns):
        return 0
    if warmup.num_requests is not None:
        return warmup.num_requests
    return int(np.searchsorted(arrival_ns, arrival_ns[0] + (warmup.duration_ns or 0)))


def _end(arrival_ns: Int64, cooldown: Edge | None) -> int:
    """The index of the arrival just before which the window ends, in order of time."""
    if cooldown is None or not len(arrival_ns):
        return len(arrival_ns) - 1
    if cooldown.num_requests is not None:
        return len(arrival_ns) - max(cooldown.num_requests, 1)
    return int(np.searchsorted(arrival_ns, arrival_ns[-1] - (cooldown.duration_ns or 0)))
