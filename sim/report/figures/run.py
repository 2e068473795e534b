"""The figures of one run: who waits, what the servers did over time, and how the fleet grew."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sim.core.arrays import Float64
from sim.core.units import NS_PER_S
from sim.metrics.groups import group_masks
from sim.metrics.latencies import finished_mask, request_latencies
from sim.metrics.pools import phases
from sim.metrics.rates import log_end_ns
from sim.metrics.registry import COLD, HOT, TENANTS, group_label
from sim.metrics.timeline import Timeline, number_in, slo_by_minute
from sim.report.figures.axes import axis_from_zero
from sim.report.figures.key_text import latency_text, time_unit
from sim.report.figures.marks import PALETTE, Line, Panel, Picture, Style
from sim.report.figures.plot_parts import Drawn, limit_marks
from sim.report.figures.run_logs import (
    draw_ttft_parts,
    has_parts,
    pool_picture,
    sizes_panel,
    stacked,
    styles_of,
    time_axis,
    timeline_picture,
    ttft_panel,
)
from sim.runlog import RunLog
from sim.runlog.servers import FleetLog, ReplicaState

_MAX_TENANTS = 7
_OF_POOL = (
    "Requests waiting and running on the pool's servers; their KV pools' tokens in use, evictable"
    " and free; tokens a second."
)
# How far from the axis a limit may be for the axis to be widened to it.
_NEAR = 4.0
_NUM_WINDOWS = 120
_STATES = {
    ReplicaState.UP: Style("up", "#0072B2", is_area=True),
    ReplicaState.STARTING: Style("starting", "#E69F00", is_area=True),
    ReplicaState.DRAINING: Style("draining", "#bbbbbb", is_area=True),
}


@dataclass(frozen=True, slots=True)
class RunData:
    """The contents of a run's folder: of the log the requests, and of its steps a timeline.

    `scenario` has `--set` options applied; `pools` are timelines, too. Without a `fleet`, all
    replicas were there from beginning to end.
    """

    scenario: Mapping[str, Any]
    summary: Mapping[str, Any]
    log: RunLog
    timeline: Timeline
    pools: Mapping[str, Timeline] = field(default_factory=dict)
    fleet: FleetLog | None = None


def draw_run(data: RunData) -> list[Drawn]:
    """Distributions of TTFT by parts of the requests, and the run over time."""
    requests = data.log.requests
    parts = {name: data.log.of_requests(mask) for name, mask in group_masks(requests).items()}
    hot_and_cold = {"all requests": data.log, HOT: parts[HOT], COLD: parts[COLD]}
    tenants = {group_label(name): part for name, part in parts.items()
               if name.startswith(f"{TENANTS}.")}  # fmt: skip
    limit = data.summary.get("goodput_slos_ms", {}).get("ttft")
    title = "Time to first token of all requests, hot and cold"
    figures = [_cdf(hot_and_cold, "ttft", title, limit)]
    if 1 < len(tenants) <= _MAX_TENANTS:
        figures.append(_cdf(tenants, "ttft-tenants", "Time to first token by tenant", limit))
    parts_of_ttft = phases(data.log)
    if parts_of_ttft is not None and has_parts(requests, parts_of_ttft):
        figures.append(draw_ttft_parts(requests, parts_of_ttft))
    title = "The run over time"
    picture = timeline_picture(data.timeline, data.log)
    caption = (
        "Requests waiting and running; the KV pool's tokens in use, evictable and free; the share"
        " of the prompt tokens of newly admitted requests that was cached; tokens a second."
    )
    figures.append(Drawn(picture, "timeline", title, caption))
    for number, (name, each) in enumerate(data.pools.items(), 1):
        own = f"What the servers of pool {name} do over time"
        figures.append(
            Drawn(pool_picture(each, data.log), f"timeline-pool-{number}", own, _OF_POOL)
        )
    if data.fleet is not None:
        figures.append(_fleet(data, data.fleet))
    return figures


def _fleet(data: RunData, fleet: FleetLog) -> Drawn:
    limits_ms = data.summary.get("goodput_slos_ms", {})
    picture = fleet_picture(fleet, data.log, data.timeline, limits_ms)
    caption = (
        "Replicas hold their GPUs while they start, take requests (up) and finish their last"
        " requests (draining). Below: the load that they follow"
    )
    caption += ", and how many requests were within the SLO." if limits_ms else "."
    return Drawn(picture, "fleet", "Replicas and load over time", caption)


def _cdf(logs: Mapping[str, RunLog], slug: str, title: str, limit_ms: float | None) -> Drawn:
    panel = ttft_panel(logs)
    caption = "The share of finished requests up to each latency; dots mark the 99th percentile."
    if limit_ms is not None:
        panel, said = _with_limit(panel, limit_ms)
        caption += f" {said}"
    picture = Picture(panels=[panel], columns=1, size_px=(980, 590), title=title,
                      legend=styles_of(logs))  # fmt: skip
    return Drawn(picture, slug, title, caption)


def _with_limit(panel: Panel, limit_ms: float) -> tuple[Panel, str]:
    """The panel with the SLO's limit, if that is near its axis, and a sentence for the caption."""
    low, high = panel.x.limits
    text = latency_text(limit_ms)
    if not low / _NEAR <= limit_ms <= high * _NEAR:
        return panel, f"The SLO, {text}, is {'above' if limit_ms > high else 'below'} the axis."
    x = replace(panel.x, limits=(min(low, limit_ms / 1.2), max(high, limit_ms * 1.2)))
    marks = [*panel.marks, *limit_marks(limit_ms, x, "x")]
    return replace(panel, x=x, marks=marks), f"The dashed red line is the SLO, {text}."


def fleet_picture(
    fleet: FleetLog, log: RunLog, timeline: Timeline, limits_ms: Mapping[str, float]
) -> Picture:
    """Replicas by what they do, arriving requests, requests in the system, and the SLO's share."""
    end_ns = log_end_ns(log)
    panels = [
        _replicas_panel(fleet, end_ns),
        _arrivals_panel(log, end_ns),
        sizes_panel(timeline, end_ns),
    ]
    if limits_ms:
        panels.append(_slo_panel(log, limits_ms, end_ns))
    return Picture(panels=panels, columns=1, size_px=(1_200, 275 * len(panels)), shares="x")


def _replicas_panel(fleet: FleetLog, end_ns: int) -> Panel:
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


def _arrivals_panel(log: RunLog, end_ns: int) -> Panel:
    edges_ns: Float64 = np.linspace(0, max(end_ns, 1), _NUM_WINDOWS + 1)
    rate = np.histogram(log.requests.arrival_ns, edges_ns)[0] / np.diff(edges_ns) * NS_PER_S
    line = Line(x=edges_ns / time_unit(end_ns)[0], y=np.append(rate, rate[-1]), colour=PALETTE[2],
                has_values=True, steps=True)  # fmt: skip
    return Panel(title="Arriving requests", x=time_axis(end_ns),
                 y=axis_from_zero("requests/s", rate), marks=[line])  # fmt: skip


def _slo_panel(log: RunLog, limits_ms: Mapping[str, float], end_ns: int) -> Panel:
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
