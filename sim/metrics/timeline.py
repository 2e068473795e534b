"""A run over time in a few hundred equal windows; a fleet that grows and shrinks, and its cost."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.core.units import NS_PER_S
from sim.metrics.latencies import Slo
from sim.metrics.pools import sizes, sizes_of_pool
from sim.metrics.rates import log_end_ns, ratio
from sim.metrics.series import NEVER_GONE, StepSeries, from_changes, gauge, tokens_per_s
from sim.runlog import RunLog, StepColumns
from sim.runlog.servers import HELD, SERVING, FleetLog, LoggedPool, ReplicaState

NUM_WINDOWS = 600


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Means over equal windows from the run's start to its end; arrays of one length.

    Attributes:
        waiting: requests in the queues of all replicas.
        used_tokens, evictable_tokens, free_tokens: of the replicas' KV pools.
    """

    t_s: Float64
    waiting: Float64
    running: Float64
    used_tokens: Float64
    evictable_tokens: Float64
    free_tokens: Float64
    prefill_tokens_per_s: Float64
    decode_tokens_per_s: Float64

    @property
    def window_s(self) -> float:
        """The length of a window; 0 if the run is empty."""
        return float(self.t_s[1]) if len(self.t_s) > 1 else 0.0


def timeline(log: RunLog) -> Timeline:
    """The run over time; empty arrays if the run has no steps."""
    return _timeline(log, log.steps, *sizes(log))


def pool_timeline(log: RunLog, pool: LoggedPool) -> Timeline:
    """What the servers of a pool did over time, from the run's start to its end."""
    steps = log.steps.rows(pool.mask(log.steps.replica))
    return _timeline(log, steps, *sizes_of_pool(log, pool))


def _timeline(
    log: RunLog, steps: StepColumns, waiting: StepSeries, running: StepSeries
) -> Timeline:
    end_ns = log_end_ns(log)
    if end_ns < NUM_WINDOWS or not len(steps.t_start_ns):
        return Timeline(*(np.zeros(0) for _ in fields(Timeline)))
    edges_ns = np.linspace(0, end_ns, NUM_WINDOWS + 1)
    fleet = FleetLog.of(log.meta)
    gone_ns = NEVER_GONE if fleet is None else stops_ns(fleet, log.num_ranks)
    used, evictable, free = (
        gauge(steps, column, gone_ns).means(edges_ns)
        for column in (steps.used_tokens, steps.evictable_tokens, steps.free_tokens)
    )
    # A replica logs nothing before its first step. Until then all of its pool is free.
    pool = (used + evictable + free).max()
    if fleet is not None and "pools" not in log.meta:
        tokens = steps.free_tokens + steps.evictable_tokens + steps.used_tokens
        pool_of_replica = int(tokens.max()) * log.num_ranks
        serving = number_in(fleet, SERVING, end_ns).means(edges_ns)
        pool = np.maximum(serving * pool_of_replica, used + evictable)
    return Timeline(
        t_s=edges_ns[:-1] / NS_PER_S,
        waiting=waiting.means(edges_ns),
        running=running.means(edges_ns),
        used_tokens=used,
        evictable_tokens=evictable,
        free_tokens=pool - used - evictable,
        prefill_tokens_per_s=tokens_per_s(steps, steps.num_prefill_tokens, edges_ns),
        decode_tokens_per_s=tokens_per_s(steps, steps.num_decode_rows * steps.num_steps, edges_ns),
    )


_MINUTE_NS = 60 * NS_PER_S
_NS_PER_HOUR = 3600 * NS_PER_S


def fleet_metrics(log: RunLog, arrival_ns: Int64, good: Bools | None, slo: Slo | None) -> Any:
    """`gpu_hours`, `replica_hours`, `mean_replicas`, `replica_starts`, `time_below_slo_s`.

    They are about the log's window, or else about the time from 0 to the log's end. Without a
    `FleetLog` there are none. `arrival_ns` are those of the requests that metrics count, of which
    the `good` ones finished within the SLO (None: there is no limit).
    """
    fleet = FleetLog.of(log.meta)
    if fleet is None:
        return {}
    begin_ns, end_ns = (0, log_end_ns(log)) if log.window_ns is None else log.window_ns
    held_ns = gpu_ns = 0
    for span in fleet.spans(HELD, end_ns):
        span_ns = max(span.end_ns - max(span.begin_ns, begin_ns), 0)
        held_ns += span_ns
        gpu_ns += span_ns * fleet.gpus[span.replica]
    starts = [event for event in fleet.events if event.state is ReplicaState.STARTING]
    below_s = None
    if good is not None and slo is not None:
        shares = slo_by_minute(arrival_ns, good, end_ns)[1]
        below_s = 60 * int((shares < slo.percentile / 100).sum())
    return {
        "gpu_hours": gpu_ns / _NS_PER_HOUR,
        "replica_hours": held_ns / _NS_PER_HOUR,
        "mean_replicas": ratio(held_ns, end_ns - begin_ns),
        "replica_starts": sum(begin_ns <= event.t_ns < end_ns for event in starts),
        "time_below_slo_s": below_s,
    }


def slo_by_minute(arrival_ns: Int64, good: Bools, end_ns: int) -> tuple[Int64, Any]:
    """For each minute in which requests arrived: its number, and the share of them that are good.

    A request is good if it finished within the SLO. The run ends at `end_ns`.
    """
    minutes = arrival_ns // _MINUTE_NS
    num_minutes = int(max(end_ns // _MINUTE_NS, minutes.max(initial=0))) + 1
    arrived = np.bincount(minutes, minlength=num_minutes)
    num_good = np.bincount(minutes, weights=good, minlength=num_minutes)
    some = np.flatnonzero(arrived)
    return some, num_good[some] / arrived[some]


def number_in(fleet: FleetLog, states: Iterable[ReplicaState], end_ns: int) -> StepSeries:
    """How many replicas are in any of these states over time."""
    spans = fleet.spans(tuple(states), end_ns)
    times = [span.begin_ns for span in spans] + [span.end_ns for span in spans]
    changes = [1] * len(spans) + [-1] * len(spans)
    return from_changes(np.array(times, dtype=np.int64), np.array(changes, dtype=np.int64))


def stops_ns(fleet: FleetLog, num_ranks: int) -> dict[int, Int64]:
    """When replicas were stopped, by the numbers that the steps of a log have."""
    times: dict[int, list[int]] = {}
    for event in fleet.events:
        if event.state is ReplicaState.STOPPED:
            for rank in range(num_ranks):
                times.setdefault(event.replica * num_ranks + rank, []).append(event.t_ns)
    return {number: np.array(at_ns, dtype=np.int64) for number, at_ns in times.items()}
