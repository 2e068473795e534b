"""Pictures of a simulation beside a measured run: request by request, and over time."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from sim.core.units import NS_PER_S
from sim.report.figures.canvas import DASHES, Style, put_header
from sim.report.figures.scales import padded, wants_log
from sim.report.plot_style import GREY, PALETTE, latency_text, new_figure, styled, time_unit

Float64 = NDArray[np.float64]

# Where the two are alike, the first one shows between the dashes of the second.
_STYLES = (
    Style("measured", PALETTE[0], marker=""),
    Style("simulated", PALETTE[1], DASHES[1], marker=""),
)
_BAND = 0.1
_PANEL_PX, _HEIGHT_PX = 480, 530
# More dots or corners than this only make the picture heavy.
_MAX_DOTS = 4_000
_MAX_CORNERS = 2_000


class Both(NamedTuple):
    """The same quantity in both runs; arrays of one length."""

    measured: Float64
    simulated: Float64


@styled
def plot_requests(latencies_ms: Mapping[str, Both]) -> Figure:
    """Each request's simulated latency over its measured one; on the diagonal they are equal.

    Args:
        latencies_ms: ms without NaN, by name; one panel each. Logarithmic axes, where a latency
            spans much, leave zeros out and say so.
    """
    figure = new_figure(_PANEL_PX * len(latencies_ms), _HEIGHT_PX)
    panels = figure.subplots(1, len(latencies_ms), squeeze=False)[0]
    for number, (name, both) in enumerate(latencies_ms.items()):
        _draw_requests(panels[number], name, both, PALETTE[number % len(PALETTE)])
    panels[0].set_ylabel("simulated")
    put_header(figure, "Requests, simulated over measured", ())
    return figure


@styled
def plot_distributions(latencies_ms: Mapping[str, Both]) -> Figure:
    """The share of requests up to each latency, measured and simulated; one panel a latency."""
    figure = new_figure(_PANEL_PX * len(latencies_ms), _HEIGHT_PX)
    panels = figure.subplots(1, len(latencies_ms), squeeze=False, sharey=True)[0]
    for axes, (name, both) in zip(panels, latencies_ms.items(), strict=True):
        percent = np.linspace(0, 100, min(max(len(both.measured), 2), _MAX_CORNERS))
        for values, style in zip(both, _STYLES, strict=True):
            if len(values):
                axes.plot(np.percentile(values, percent), percent, color=style.colour,
                          linestyle=style.dash)  # fmt: skip
        low, high, is_log = _span(both)
        if is_log:
            axes.set_xscale("log")
            # Zeros have no place there.
            axes.set_xlim(*padded(low, high, 0.04, is_log=True))
        _put_ticks(axes.xaxis, low, high, is_log=is_log)
        axes.set_title(name)
        axes.set_xlabel(_with_scale(name, is_log=is_log))
    panels[0].set_ylim(0, 103)
    panels[0].set_yticks([0, 25, 50, 75, 100])
    panels[0].set_ylabel("requests (%)")
    put_header(figure, "How latencies are distributed", _STYLES)
    return figure


@styled
def plot_over_time(t_s: Float64, sizes: Mapping[str, Both]) -> Figure:
    """Numbers of requests over time, measured and simulated; one panel a size.

    Args:
        t_s: when they were measured; rises.
        sizes: by name.
    """
    unit_ns, unit = time_unit(round(float(t_s[-1]) * NS_PER_S))
    figure = new_figure(1_100, 330 * len(sizes) + 90)
    panels = figure.subplots(len(sizes), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, both) in zip(panels, sizes.items(), strict=True):
        for values, style in zip(both, _STYLES, strict=True):
            axes.plot(t_s * NS_PER_S / unit_ns, values, color=style.colour, linestyle=style.dash)
        axes.set_title(name)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("requests")
        axes.margins(x=0)
        axes.set_xlim(left=0)
    panels[-1].set_xlabel(f"time ({unit})")
    put_header(figure, "Requests over time", _STYLES)
    figure.align_ylabels()
    return figure


def _draw_requests(axes: Axes, name: str, both: Both, colour: str) -> None:
    low, high, is_log = _span(both)
    shown = (both.measured > 0) & (both.simulated > 0) | (not is_log)
    measured, simulated = both.measured[shown], both.simulated[shown]
    every = max(1, -(-len(measured) // _MAX_DOTS))
    axes.plot(
        measured[::every], simulated[::every], "o", color=colour, markersize=3.5, alpha=0.45,
        markeredgewidth=0, label="requests",
    )  # fmt: skip
    limits = np.array(padded(low, high, 0.04, is_log=is_log))
    axes.plot(limits, limits, color=GREY, linewidth=1, label="equal")
    for factor in (1 - _BAND, 1 + _BAND):
        axes.plot(limits, limits * factor, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(f"dashed: ±{100 * _BAND:.0f} %", (0.04, 0.96), xycoords="axes fraction", va="top",
                  color=GREY)  # fmt: skip
    if is_log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        _put_ticks(axis, low, high, is_log=is_log)
    axes.set_xlim(*limits)
    axes.set_ylim(*limits)
    axes.set_aspect("equal")
    num_zeros = len(shown) - len(measured)
    left_out = f", {num_zeros:,} at 0 left out" if num_zeros else ""
    axes.set_title(f"{name}, {len(measured):,} requests{left_out}")
    axes.set_xlabel(_with_scale("measured", is_log=is_log))


def _span(both: Both) -> tuple[float, float, bool]:
    """The smallest and largest value, of those above 0 if the axis is to be logarithmic."""
    values = np.concatenate(both)
    above = values[values > 0]
    if not len(above):
        return 0.0, 1.0, False
    is_log = wants_log([float(above.min()), float(above.max())], None)
    return float((above if is_log else values).min()), float(above.max()), is_log


def _with_scale(words: str, *, is_log: bool) -> str:
    return f"{words} (log scale)" if is_log else words


def _put_ticks(axis: Axis, low: float, high: float, *, is_log: bool) -> None:
    """Ticks that read 10 ms, 100 ms, 1 s, ...; few enough that they do not touch."""
    if not is_log:
        axis.set_major_locator(MaxNLocator(5))
    elif high < 50 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _position: latency_text(value)))
    axis.set_minor_formatter(NullFormatter())
