"""What a fleet costs, in windows too, and how its memory is drawn; computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from sim.metrics.latencies import Slo
from sim.metrics.summary import summarise
from sim.metrics.timeline import timeline
from sim.runlog.servers import FleetEvent, FleetLog, ReplicaState
from tests.support.run_logs import request_columns, run_log, step_columns

S = 10**9
STARTING, UP, DRAINING, STOPPED = ReplicaState
# Replica 0 all the time; replica 1 from 10 s to 40 s, and again from 90 s on.
EVENTS = (
    (0, 0, UP),
    (10, 1, STARTING),
    (20, 1, UP),
    (30, 1, DRAINING),
    (40, 1, STOPPED),
    (90, 1, STARTING),
)


def fleet_log(requests, steps=None, *, gpus=(4, 4)):
    events = [FleetEvent(at_s * S, replica, state) for at_s, replica, state in EVENTS]
    log = run_log(requests) if steps is None else run_log(requests, steps)
    return replace(log, meta={**log.meta, "fleet": FleetLog(events, gpus).to_meta()})


def arrivals(at_s, late=()):
    """Requests with a first token after half a second, or two for those that are late."""
    arrival_ns = np.array(at_s) * S
    first_ns = arrival_ns + np.where(np.isin(range(len(at_s)), late), 2 * S, S // 2)
    return request_columns(
        arrival_ns=arrival_ns.tolist(),
        scheduled_ns=arrival_ns.tolist(),
        first_token_ns=first_ns.tolist(),
        finish_ns=[*first_ns[:-1].tolist(), 100 * S],
        output_tokens=[2] * len(at_s),
    )


def test_fleet_costs_are_integrals_up_to_the_end():
    """100 s of replica 0; 30 s and 10 s of replica 1: 140 s of four GPUs."""
    summary = summarise(fleet_log(arrivals([0, 50, 99])))
    assert summary["replica_hours"] == pytest.approx(140 / 3600)
    assert summary["gpu_hours"] == pytest.approx(4 * 140 / 3600)
    assert summary["mean_replicas"] == pytest.approx(1.4)
    assert summary["replica_starts"] == 2
    assert summary["time_below_slo_s"] is None


def test_fleet_costs_of_a_window_are_those_inside():
    """From 20 s to 80 s: 60 s of replica 0 and 20 s of replica 1; no start."""
    log = replace(fleet_log(arrivals([0, 20, 50, 80, 99])), window_ns=(20 * S, 80 * S))
    summary = summarise(log)
    assert summary["replica_hours"] == pytest.approx(80 / 3600)
    assert summary["mean_replicas"] == pytest.approx(80 / 60)
    assert summary["replica_starts"] == 0


def test_time_below_slo_counts_minutes_whose_share_is_too_small():
    """Minute 0: one of four late, 75 %; minute 1: one of two, 50 %; nobody in between matters."""
    log = fleet_log(arrivals([0, 1, 2, 3, 61, 62], late=(3, 5)))
    for percentile, minutes in ((50, 0), (90, 2)):
        summary = summarise(log, Slo(ttft_ms=1_000, percentile=percentile))
        assert summary["time_below_slo_s"] == 60 * minutes
    # 75 % is enough for nothing that a scenario may ask for but the median.
    assert summarise(log, Slo(ttft_ms=1_000, percentile=75))["time_below_slo_s"] == 60


def test_timeline_has_the_memory_of_the_replicas_that_are_there():
    """Each has 100 tokens; what replica 1 had cached is gone when it has stopped at 40 s."""
    steps = step_columns(
        replica=[0, 1],
        t_start_ns=[0, 20 * S],
        t_end_ns=[S, 21 * S],
        evictable_tokens=[30, 50],
        used_tokens=[10, 0],
        free_tokens=[60, 50],
    )
    drawn = timeline(fleet_log(arrivals([0, 50, 99]), steps))

    def at(second):
        row = int(np.searchsorted(drawn.t_s, second, side="right")) - 1
        return [getattr(drawn, f"{kind}_tokens")[row] for kind in ("used", "evictable", "free")]

    assert at(10) == pytest.approx([10, 30, 60])
    assert at(30) == pytest.approx([10, 80, 110])
    assert at(60) == pytest.approx([10, 30, 60])
