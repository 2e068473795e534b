"""The figures of one run: who waits, and what the server did over time."""

from collections.abc import Mapping
from dataclasses import replace

from sim.metrics.groups import group_masks
from sim.metrics.handovers import phases
from sim.metrics.metric_name import COLD, HOT, TENANTS, group_label
from sim.report.figures.drawn import Drawn
from sim.report.figures.fleet import fleet_picture
from sim.report.figures.marks import Panel, Picture
from sim.report.figures.run_logs import pool_picture, styles_of, timeline_picture, ttft_panel
from sim.report.figures.slo import limit_marks
from sim.report.figures.styles import latency_text
from sim.report.figures.ttft_parts import draw_ttft_parts, has_parts
from sim.report.run_data import RunData
from sim.runlog import RunLog
from sim.runlog.fleet import FleetLog

_MAX_TENANTS = 7
_OF_POOL = (
    "Requests that wait at the pool's servers and that they serve; the tokens in use, evictable and"
    " free of their KV pools; tokens a second."
)
# How far from the axis a limit may be for the axis to be widened to it.
_NEAR = 4.0


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
    """The panel with the SLO's limit, on an axis widened to it if it is near; words about it."""
    low, high = panel.x.limits
    text = latency_text(limit_ms)
    if not low / _NEAR <= limit_ms <= high * _NEAR:
        return panel, f"The SLO, {text}, is {'above' if limit_ms > high else 'below'} the axis."
    x = replace(panel.x, limits=(min(low, limit_ms / 1.2), max(high, limit_ms * 1.2)))
    marks = [*panel.marks, *limit_marks(limit_ms, x, "x")]
    return replace(panel, x=x, marks=marks), f"The dashed red line is the SLO, {text}."
