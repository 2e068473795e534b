"""The picture of a fleet that grows and shrinks: its replicas and its load over time."""

from collections.abc import Mapping

import numpy as np

from sim.core.arrays import Float64
from sim.core.units import NS_PER_S
from sim.metrics.fleet import number_in, slo_by_minute
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.saturation import log_end_ns
from sim.metrics.timeline import Timeline
from sim.report.figures.marks import Line, Panel, Picture, Style
from sim.report.figures.metric_axis import axis_from_zero
from sim.report.figures.run_logs import sizes_panel, stacked, time_axis
from sim.report.figures.styles import PALETTE, time_unit
from sim.runlog import RunLog
from sim.runlog.fleet import FleetLog, ReplicaState

_NUM_WINDOWS = 120
_STATES = {
    ReplicaState.UP: Style("up", "#0072B2", is_area=True),
    ReplicaState.STARTING: Style("starting", "#E69F00", is_area=True),
    ReplicaState.DRAINING: Style("draining", "#bbbbbb", is_area=True),
}


def fleet_picture(
    fleet: FleetLog, log: RunLog, timeline: Timeline, limits_ms: Mapping[str, float]
) -> Picture:
    """Replicas by what they do, arriving requests, requests in the system, and the SLO's share.

    Args:
        fleet: what happened to the replicas.
        log: the run; it needs no steps.
        timeline: the run's steps over time.
        limits_ms: limits of latencies, by name; without any there is no panel of the SLO.
    """
    end_ns = log_end_ns(log)
    panels = [_replicas(fleet, end_ns), _arrivals(log, end_ns), sizes_panel(timeline, end_ns)]
    if limits_ms:
        panels.append(_slo(log, limits_ms, end_ns))
    return Picture(panels=panels, columns=1, size_px=(1_200, 275 * len(panels)), shares="x")


def _replicas(fleet: FleetLog, end_ns: int) -> Panel:
    """The replicas in each state, stacked, with steps where they change."""
    times = np.unique([event.t_ns for event in fleet.events] + [end_ns])
    numbers = []
    for state in _STATES:
        series = number_in(fleet, [state], end_ns)
        place = np.searchsorted(series.t_ns, times, side="right") - 1
        numbers.append(np.where(place >= 0, np.append(series.value, 0)[place], 0))
    styles = list(_STATES.values())
    bands = list(stacked(times / time_unit(end_ns)[0], numbers, styles, steps=True))
    y = axis_from_zero("replicas", np.sum(numbers, axis=0), is_whole=True)
    return Panel(title="Replicas", x=time_axis(end_ns), y=y, marks=bands, legend=styles)


def _arrivals(log: RunLog, end_ns: int) -> Panel:
    edges_ns: Float64 = np.linspace(0, max(end_ns, 1), _NUM_WINDOWS + 1)
    rate = np.histogram(log.requests.arrival_ns, edges_ns)[0] / np.diff(edges_ns) * NS_PER_S
    line = Line(x=edges_ns / time_unit(end_ns)[0], y=np.append(rate, rate[-1]), colour=PALETTE[2],
                has_values=True, steps=True)  # fmt: skip
    return Panel(title="Arriving requests", x=time_axis(end_ns),
                 y=axis_from_zero("requests/s", rate), marks=[line])  # fmt: skip


def _slo(log: RunLog, limits_ms: Mapping[str, float], end_ns: int) -> Panel:
    requests = log.requests
    latencies = request_latencies(requests)._asdict()
    good = finished_mask(requests)
    for name, limit_ms in limits_ms.items():
        measured_ms = latencies[f"{name}_ms"]
        good &= np.isnan(measured_ms) | (measured_ms <= limit_ms)
    minutes, shares = slo_by_minute(requests.arrival_ns, good, end_ns)
    at = (minutes + 0.5) * 60 * NS_PER_S / time_unit(end_ns)[0]
    line = Line(x=at, y=100 * shares, colour=PALETTE[1], width=1.1, has_values=True)
    return Panel(title="Requests within the SLO, by minute of arrival", x=time_axis(end_ns),
                 y=axis_from_zero("SLO met (%)", 100 * shares), marks=[line])  # fmt: skip
