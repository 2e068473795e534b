"""The picture of where TTFT goes if prefill and decode servers are apart."""

import numpy as np

from sim.core.arrays import Bools, Float64, Int64
from sim.metrics.handovers import Phases
from sim.metrics.latencies import finished_mask
from sim.metrics.registry import PHASES, TTFT
from sim.report.figures.drawn import Drawn
from sim.report.figures.marks import Axis, Panel, Picture, Style
from sim.report.figures.metric_axis import axis_from_zero
from sim.report.figures.run_logs import stacked
from sim.report.figures.styles import PALETTE, time_unit
from sim.runlog import RequestColumns

_MAX_WINDOWS, _REQUESTS_PER_WINDOW = 60, 5
_TITLE = "Where the time to first token goes"
_CAPTION = (
    "The parts of TTFT of finished requests, stacked: on the left by how long their TTFT is, on the"
    " right by when they arrived. Each point is the mean of some requests."
)
_STYLES = [Style(phase.label, PALETTE[number], is_area=True)
           for number, phase in enumerate(PHASES.values())]  # fmt: skip


def has_parts(requests: RequestColumns, parts: Phases) -> bool:
    """Whether there is a request to draw."""
    return bool(_shown(requests, parts).any())


def draw_ttft_parts(requests: RequestColumns, parts: Phases) -> Drawn:
    """Stacked parts of TTFT; `has_parts` must be true."""
    shown = _shown(requests, parts)
    values_ms = np.stack([part[shown] for part in parts])
    ttft_ms, arrival_ns = values_ms.sum(axis=0), requests.arrival_ns[shown]
    percent = (np.arange(len(ttft_ms)) + 0.5) * 100 / len(ttft_ms)
    unit_ns, unit = time_unit(int(arrival_ns.max()))
    by_ttft, by_time = (np.argsort(each, kind="stable") for each in (ttft_ms, arrival_ns))
    left = _means(percent, values_ms[:, by_ttft])
    right = _means(arrival_ns[by_time] / unit_ns, values_ms[:, by_time])
    y = axis_from_zero(f"{TTFT.words} (ms)", left[1:].sum(axis=0), right[1:].sum(axis=0))
    panels = [_stack("By TTFT", "requests in order of TTFT (%)", left, y),
              _stack("By arrival", f"time of arrival ({unit})", right, y)]  # fmt: skip
    picture = Picture(panels=panels, columns=2, size_px=(1_200, 590), title=_TITLE,
                      legend=_STYLES, shares="y")  # fmt: skip
    return Drawn(picture, "ttft-parts", _TITLE, _CAPTION)


def _shown(requests: RequestColumns, parts: Phases) -> Bools:
    return finished_mask(requests) & ~np.isnan(parts.prefill_ms)


def _stack(title: str, x_label: str, means: Float64, y: Axis) -> Panel:
    x, *heights = means
    limits = float(x[0]), float(x[-1]) if x[-1] > x[0] else float(x[0]) + 1.0
    bands = list(stacked(x, heights, _STYLES))
    return Panel(title=title, x=Axis(label=x_label, limits=limits), y=y, marks=bands)


def _means(x: Float64, values: Float64) -> Float64:
    """Means over groups of requests in order of `x`: of `x`, and of each row of `values`."""
    groups = _groups(len(x))
    counts = np.bincount(groups)
    return np.stack([np.bincount(groups, weights=row) / counts for row in (x, *values)])


def _groups(size: int) -> Int64:
    """The group of each request, of `size` in order. Groups have about the same size."""
    number = int(np.clip(size // _REQUESTS_PER_WINDOW, 1, _MAX_WINDOWS))
    return np.asarray(np.arange(size, dtype=np.int64) * number // size, dtype=np.int64)
