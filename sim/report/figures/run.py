"""The figures of one run: who waits, and what the server did over time."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.metrics.groups import group_masks
from sim.metrics.handovers import phases
from sim.metrics.metric_name import COLD, HOT, TENANTS, group_label
from sim.report.figures.canvas import Drawn, Style, put_header
from sim.report.figures.fleet import draw_fleet
from sim.report.figures.run_logs import draw_pool, draw_timeline
from sim.report.figures.run_panels import colours, draw_ttft_cdf
from sim.report.figures.slo import draw_limit
from sim.report.figures.ttft_parts import draw_ttft_parts, has_parts
from sim.report.plot_style import latency_text, new_figure, styled
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
    figure = draw_timeline(data.timeline, data.log)
    caption = (
        "Requests waiting and running; the KV pool's tokens in use, evictable and free; the share"
        " of the prompt tokens of newly admitted requests that was cached; tokens a second."
    )
    figures.append(Drawn(figure, "timeline", title, caption))
    for number, (name, each) in enumerate(data.pools.items(), 1):
        own = f"What the servers of pool {name} do over time"
        figures.append(Drawn(draw_pool(each, data.log), f"timeline-pool-{number}", own, _OF_POOL))
    if data.fleet is not None:
        figures.append(_fleet(data, data.fleet))
    return figures


def _fleet(data: RunData, fleet: FleetLog) -> Drawn:
    limits_ms = data.summary.get("goodput_slos_ms", {})
    figure = draw_fleet(fleet, data.log, data.timeline, limits_ms)
    caption = (
        "Replicas hold their GPUs while they start, take requests (up) and finish their last"
        " requests (draining). Below: the load that they follow"
    )
    caption += ", and how many requests were within the SLO." if limits_ms else "."
    return Drawn(figure, "fleet", "Replicas and load over time", caption)


@styled
def _cdf(logs: Mapping[str, RunLog], slug: str, title: str, limit_ms: float | None) -> Drawn:
    figure: Figure = new_figure(980, 590)
    axes = figure.add_subplot()
    draw_ttft_cdf(axes, logs)
    caption = "The share of finished requests up to each latency; dots mark the 99th percentile."
    if limit_ms is not None:
        caption += f" {_with_limit(axes, limit_ms)}"
    styles = [Style(name, colour, marker="") for name, colour in colours(logs).items()]
    put_header(figure, title, styles)
    return Drawn(figure, slug, title, caption)


def _with_limit(axes: Axes, limit_ms: float) -> str:
    """Draw the SLO's limit, on an axis widened to it if it is near; returns words about it."""
    low, high = axes.get_xlim()
    if low / _NEAR <= limit_ms <= high * _NEAR:
        axes.set_xlim(min(low, limit_ms / 1.2), max(high, limit_ms * 1.2))
        draw_limit(axes, limit_ms, "x")
        return f"The dashed red line is the SLO, {latency_text(limit_ms)}."
    return (
        f"The SLO, {latency_text(limit_ms)}, is {'above' if limit_ms > high else 'below'} the axis."
    )
