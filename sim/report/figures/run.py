"""The figures of one run: who waits, and what the server did over time."""

from collections.abc import Mapping
from dataclasses import replace

from matplotlib.figure import Figure

from sim.metrics.groups import group_masks
from sim.metrics.metric_name import COLD, HOT, TENANTS, group_label
from sim.report.figures.canvas import Drawn, Style, put_header
from sim.report.figures.run_logs import draw_timeline
from sim.report.figures.run_panels import colours, draw_ttft_cdf
from sim.report.plot_style import new_figure, styled
from sim.report.run_data import RunData
from sim.runlog import RunLog

_MAX_TENANTS = 7


def draw_run(data: RunData) -> list[Drawn]:
    """Distributions of TTFT by parts of the requests, and the run over time."""
    requests = data.log.requests
    parts = {
        name: replace(data.log, requests=requests.rows(mask))
        for name, mask in group_masks(requests).items()
    }
    hot_and_cold = {"all requests": data.log, HOT: parts[HOT], COLD: parts[COLD]}
    tenants = {group_label(name): part for name, part in parts.items()
               if name.startswith(f"{TENANTS}.")}  # fmt: skip
    figures = [_cdf(hot_and_cold, "ttft", "Time to first token of all requests, hot and cold")]
    if 1 < len(tenants) <= _MAX_TENANTS:
        figures.append(_cdf(tenants, "ttft-tenants", "Time to first token by tenant"))
    title = "The run over time"
    figure = draw_timeline(data.timeline, data.log)
    caption = (
        "Requests waiting and running; the KV pool's tokens in use, evictable and free; the share"
        " of the prompt tokens of newly admitted requests that was cached; tokens a second."
    )
    return [*figures, Drawn(figure, "timeline", title, caption)]


@styled
def _cdf(logs: Mapping[str, RunLog], slug: str, title: str) -> Drawn:
    figure: Figure = new_figure(980, 590)
    draw_ttft_cdf(figure.add_subplot(), logs)
    styles = [Style(name, colour, marker="") for name, colour in colours(logs).items()]
    put_header(figure, title, styles)
    caption = "The share of finished requests up to each latency; dots mark the 99th percentile."
    return Drawn(figure, slug, title, caption)
