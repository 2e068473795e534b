"""What a fleet that grows and shrinks costs, and how long it was too small."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from sim.core.arrays import Bools, Int64
from sim.core.units import NS_PER_S
from sim.metrics.rates import ratio
from sim.metrics.saturation import log_end_ns
from sim.metrics.series import StepSeries, from_changes
from sim.metrics.slo import Slo
from sim.runlog import RunLog
from sim.runlog.servers import HELD, FleetLog, ReplicaState

_MINUTE_NS = 60 * NS_PER_S
_NS_PER_HOUR = 3600 * NS_PER_S


def fleet_metrics(log: RunLog, arrival_ns: Int64, good: Bools | None, slo: Slo | None) -> Any:
    """`gpu_hours`, `replica_hours`, `mean_replicas`, `replica_starts`, `time_below_slo_s`.

    They are about the log's window, or else about the time from 0 to the log's end.

    Args:
        log: the whole run; without a `FleetLog` the result is empty.
        arrival_ns: of the requests that metrics count.
        good: which of these finished within the SLO; None: there is no limit.
        slo: the limits.
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
