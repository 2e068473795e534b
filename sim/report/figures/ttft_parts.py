"""The picture of where TTFT goes if prefill and decode servers are apart."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.core.arrays import Bools, Float64, Int64
from sim.metrics.handovers import Phases
from sim.metrics.latencies import finished_mask
from sim.metrics.registry import PHASES, TTFT
from sim.report.figures.canvas import Drawn, Style, put_header
from sim.report.figures.ownership import own
from sim.report.plot_style import PALETTE, new_figure, styled, time_unit
from sim.runlog import RequestColumns

_MAX_WINDOWS, _REQUESTS_PER_WINDOW = 60, 5
_TITLE = "Where the time to first token goes"
_CAPTION = (
    "The parts of TTFT of finished requests, stacked: on the left by how long their TTFT is, on the"
    " right by when they arrived. Each point is the mean of some requests."
)


def has_parts(requests: RequestColumns, parts: Phases) -> bool:
    """Whether there is a request to draw."""
    return bool(_shown(requests, parts).any())


@styled
def draw_ttft_parts(requests: RequestColumns, parts: Phases) -> Drawn:
    """Stacked parts of TTFT; `has_parts` must be true."""
    shown = _shown(requests, parts)
    values_ms = np.stack([part[shown] for part in parts])
    ttft_ms, arrival_ns = values_ms.sum(axis=0), requests.arrival_ns[shown]
    styles = [
        Style(phase.label, PALETTE[number], marker="")
        for number, phase in enumerate(PHASES.values())
    ]
    figure: Figure = new_figure(1_200, 590)
    by_ttft, by_time = figure.subplots(1, 2, sharey=True)
    percent = (np.arange(len(ttft_ms)) + 0.5) * 100 / len(ttft_ms)
    _stack(by_ttft, percent, values_ms[:, np.argsort(ttft_ms, kind="stable")], styles)
    by_ttft.set_title("By TTFT")
    by_ttft.set_xlabel("requests in order of TTFT (%)")
    by_ttft.set_ylabel(f"{TTFT.words} (ms)")
    unit_ns, unit = time_unit(int(arrival_ns.max()))
    order = np.argsort(arrival_ns, kind="stable")
    _stack(by_time, arrival_ns[order] / unit_ns, values_ms[:, order], styles)
    by_time.set_title("By arrival")
    by_time.set_xlabel(f"time of arrival ({unit})")
    for axes in (by_ttft, by_time):
        axes.margins(x=0)
        axes.set_ylim(bottom=0)
    put_header(figure, _TITLE, styles, as_patches=True)
    return Drawn(figure, "ttft-parts", _TITLE, _CAPTION)


def _shown(requests: RequestColumns, parts: Phases) -> Bools:
    return finished_mask(requests) & ~np.isnan(parts.prefill_ms)


def _stack(axes: Axes, x: Float64, values: Float64, styles: list[Style]) -> None:
    """Draw the parts of requests in order of `x`; `values` has shape [parts, requests]."""
    groups = _groups(len(x))
    counts = np.bincount(groups)
    middles = np.bincount(groups, weights=x) / counts
    means = [np.bincount(groups, weights=part) / counts for part in values]
    axes.stackplot(
        middles,
        means,
        labels=[own(style.label) for style in styles],
        colors=[style.colour for style in styles],
    )


def _groups(size: int) -> Int64:
    """The group of each request, of `size` in order. Groups have about the same size."""
    number = int(np.clip(size // _REQUESTS_PER_WINDOW, 1, _MAX_WINDOWS))
    return np.asarray(np.arange(size, dtype=np.int64) * number // size, dtype=np.int64)
