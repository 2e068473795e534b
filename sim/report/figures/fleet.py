"""The figure of a fleet that grows and shrinks: its replicas and its load over time."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sim.core.arrays import Float64
from sim.core.units import NS_PER_S
from sim.metrics.fleet import number_in, slo_by_minute
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.saturation import log_end_ns
from sim.metrics.timeline import Timeline
from sim.report.figures.run_panels import draw_sizes
from sim.report.plot_style import PALETTE, new_figure, styled, time_unit
from sim.runlog import RunLog
from sim.runlog.fleet import FleetLog, ReplicaState

_NUM_WINDOWS = 120
_STATES = {
    ReplicaState.UP: ("up", "#0072B2"),
    ReplicaState.STARTING: ("starting", "#E69F00"),
    ReplicaState.DRAINING: ("draining", "#bbbbbb"),
}


@styled
def draw_fleet(
    fleet: FleetLog,
    log: RunLog,
    timeline: Timeline,
    limits_ms: Mapping[str, float],
) -> Figure:
    """Replicas by what they do, arriving requests, requests in the system, and the SLO's share.

    Args:
        fleet: what happened to the replicas.
        log: the run; it needs no steps.
        timeline: the run's steps over time.
        limits_ms: limits of latencies, by name; without any there is no panel of the SLO.
    """
    end_ns = log_end_ns(log)
    unit_ns, unit = time_unit(end_ns)
    num_panels = 4 if limits_ms else 3
    figure = new_figure(1_200, 275 * num_panels)
    panels = figure.subplots(num_panels, 1, sharex=True)
    _draw_replicas(panels[0], fleet, end_ns, unit_ns)
    _draw_arrivals(panels[1], log, end_ns, unit_ns)
    draw_sizes(panels[2], timeline, unit_ns / NS_PER_S)
    titles = ["Replicas", "Arriving requests", "Requests"]
    if limits_ms:
        _draw_slo(panels[3], log, limits_ms, unit_ns)
        titles.append("Requests within the SLO, by minute of arrival")
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
        axes.margins(x=0)
        axes.set_ylim(bottom=0)
    for axes in (panels[0], panels[2]):
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=3, borderaxespad=0.0)
    panels[-1].set_xlabel(f"time ({unit})")
    panels[-1].set_xlim(0, end_ns / unit_ns)
    figure.align_ylabels()
    return figure


def _draw_replicas(axes: Axes, fleet: FleetLog, end_ns: int, unit_ns: int) -> None:
    """The replicas in each state, stacked, with steps where they change."""
    times = np.unique([event.t_ns for event in fleet.events] + [end_ns])
    numbers = []
    for state in _STATES:
        series = number_in(fleet, [state], end_ns)
        place = np.searchsorted(series.t_ns, times, side="right") - 1
        numbers.append(np.where(place >= 0, np.append(series.value, 0)[place], 0))
    labels, colours = zip(*_STATES.values(), strict=True)
    axes.stackplot(times / unit_ns, numbers, labels=labels, colors=colours, step="post")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("replicas")


def _draw_arrivals(axes: Axes, log: RunLog, end_ns: int, unit_ns: int) -> None:
    edges_ns: Float64 = np.linspace(0, max(end_ns, 1), _NUM_WINDOWS + 1)
    arrived = np.histogram(log.requests.arrival_ns, edges_ns)[0]
    rate = arrived / np.diff(edges_ns) * NS_PER_S
    axes.stairs(rate, edges_ns / unit_ns, baseline=None, color=PALETTE[2])
    axes.set_ylabel("requests/s")


def _draw_slo(axes: Axes, log: RunLog, limits_ms: Mapping[str, float], unit_ns: int) -> None:
    requests = log.requests
    latencies = request_latencies(requests)._asdict()
    good = finished_mask(requests)
    for name, limit_ms in limits_ms.items():
        measured_ms = latencies[f"{name}_ms"]
        good &= np.isnan(measured_ms) | (measured_ms <= limit_ms)
    minutes, shares = slo_by_minute(requests.arrival_ns, good, log_end_ns(log))
    at = (minutes + 0.5) * 60 * NS_PER_S / unit_ns
    axes.plot(at, 100 * shares, color=PALETTE[1], linewidth=1.1)
    axes.set_ylabel("SLO met (%)")
