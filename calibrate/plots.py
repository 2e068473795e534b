"""Pictures of a simulation beside what was measured: steps, requests, and sizes over time."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from sim.core.arrays import Float64
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.report.figures.canvas import DASHES, Style, put_header
from sim.report.figures.cdf_frame import put_percent_axis
from sim.report.figures.scales import padded, wants_log
from sim.report.plot_style import (
    GREY,
    PALETTE,
    latency_text,
    new_figure,
    plain_text,
    put_log_ticks,
    put_tick_text,
    styled,
    time_unit,
)

# Where the curves coincide, the first one is visible between the dashes of the second.
_STYLES = (
    Style("measured", PALETTE[0], marker=""),
    Style("simulated", PALETTE[1], DASHES[1], marker=""),
)
_BAND = 0.1
_PANEL_PX, _HEIGHT_PX = 480, 530
_STEP_PANEL_PX, _STEP_HEIGHT_PX = 520, 560
# More dots or corners only make the file larger.
_MAX_DOTS = 4_000
_MAX_CORNERS = 2_000


class Both(NamedTuple):
    """The same quantity in both runs; arrays of one length."""

    measured: Float64
    simulated: Float64


class _Span(NamedTuple):
    """The smallest and the largest value to show, and whether on a logarithmic axis."""

    low: float
    high: float
    is_log: bool

    @staticmethod
    def of(both: Both) -> "_Span":
        """The range of the values; on a logarithmic axis, of the values above 0."""
        values = np.concatenate(both)
        above = values[values > 0]
        if not len(above):
            return _Span(0.0, 1.0, False)
        is_log = wants_log([float(above.min()), float(above.max())], None)
        return _Span(float((above if is_log else values).min()), float(above.max()), is_log)

    def named(self, words: str) -> str:
        return f"{words} (log scale)" if self.is_log else words

    def put_ticks(self, axis: Axis) -> None:
        """Put ticks such as 10 ms, 100 ms, 1 s, and not more than have room for their labels."""
        if self.is_log:
            put_log_ticks(axis, self.low, self.high)
        else:
            axis.set_major_locator(MaxNLocator(5))
            axis.set_minor_formatter(NullFormatter())
        put_tick_text(axis, latency_text)


@styled
def plot_step_times(times: Mapping[str, tuple[Float64, Float64]]) -> Figure:
    """Predicted over measured step times, logarithmic; on the diagonal they are equal.

    Args:
        times: measured and predicted ns, each of shape [num_steps], all above 0; one panel for
            each name.
    """
    figure = new_figure(_STEP_PANEL_PX * max(len(times), 1), _STEP_HEIGHT_PX)
    panels = figure.subplots(1, max(len(times), 1), squeeze=False)[0]
    for number, (name, (measured_ns, predicted_ns)) in enumerate(times.items()):
        both = Both(measured_ns / NS_PER_MS, predicted_ns / NS_PER_MS)
        values = np.concatenate(both)
        span = _Span(float(values.min() / 1.2), float(values.max() * 1.2), is_log=True)
        colour = PALETTE[number % len(PALETTE)]
        _draw_against(panels[number], both, span, (span.low, span.high), colour, "steps", 0.35)
        panels[number].set_title(plain_text(f"{name}, {len(measured_ns):,} steps"))
    panels[0].set_ylabel("predicted")
    return figure


@styled
def plot_requests(latencies_ms: Mapping[str, Both]) -> Figure:
    """Each request's simulated latency over its measured one; on the diagonal they are equal.

    Args:
        latencies_ms: ms without NaN, by name; one panel each. An axis is logarithmic if a latency
            has a wide range; it then leaves out zeros and says so.
    """
    figure = new_figure(_PANEL_PX * len(latencies_ms), _HEIGHT_PX)
    panels = figure.subplots(1, len(latencies_ms), squeeze=False)[0]
    for number, (name, both) in enumerate(latencies_ms.items()):
        span = _Span.of(both)
        shown = (both.measured > 0) & (both.simulated > 0) | (not span.is_log)
        limits = padded(span.low, span.high, 0.04, is_log=span.is_log)
        dots = Both(both.measured[shown], both.simulated[shown])
        colour = PALETTE[number % len(PALETTE)]
        _draw_against(panels[number], dots, span, limits, colour, "requests", 0.45)
        num_shown, num_zeros = int(shown.sum()), int((~shown).sum())
        left_out = f", {num_zeros:,} at 0 left out" if num_zeros else ""
        panels[number].set_title(f"{name}, {num_shown:,} requests{left_out}")
    panels[0].set_ylabel("simulated")
    put_header(figure, "Requests, simulated over measured", ())
    return figure


@styled
def plot_distributions(latencies_ms: Mapping[str, Both]) -> Figure:
    """The share of requests up to each latency, measured and simulated, in one panel each."""
    figure = new_figure(_PANEL_PX * len(latencies_ms), _HEIGHT_PX)
    panels = figure.subplots(1, len(latencies_ms), squeeze=False, sharey=True)[0]
    for axes, (name, both) in zip(panels, latencies_ms.items(), strict=True):
        percent = np.linspace(0, 100, min(max(len(both.measured), 2), _MAX_CORNERS))
        for values, style in zip(both, _STYLES, strict=True):
            if len(values):
                axes.plot(np.percentile(values, percent), percent, color=style.colour,
                          linestyle=style.dash)  # fmt: skip
        span = _Span.of(both)
        if span.is_log:
            axes.set_xscale("log")
            # A logarithmic axis has no place for zeros.
            axes.set_xlim(*padded(span.low, span.high, 0.04, is_log=True))
        span.put_ticks(axes.xaxis)
        axes.set_title(name)
        axes.set_xlabel(span.named(name))
    put_percent_axis(panels[0], "requests (%)")
    put_header(figure, "How latencies are distributed", _STYLES)
    return figure


@styled
def plot_over_time(t_s: Float64, sizes: Mapping[str, Both]) -> Figure:
    """Numbers of requests over time, measured and simulated; one panel for each size.

    Args:
        t_s: times of measurement, ascending.
        sizes: numbers of requests (for example `running`) at these times, by name.
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


def _draw_against(
    axes: Axes, both: Both, span: _Span, limits: tuple[float, float], colour: str, what: str,
    alpha: float,
) -> None:  # fmt: skip
    """Dots of one run over the other, the line where both are equal, and a band of 10 %.

    Args:
        axes: the panel; it is made square.
        both: the values to draw, in ms.
        span: the range of the values, which decides scale and ticks.
        limits: of both axes.
        colour: of the dots.
        what: what a dot stands for.
        alpha: of the dots.
    """
    every = max(1, -(-len(both.measured) // _MAX_DOTS))
    axes.plot(both.measured[::every], both.simulated[::every], "o", color=colour, markersize=3.5,
              alpha=alpha, markeredgewidth=0, label=what)  # fmt: skip
    corners = np.array(limits)
    axes.plot(corners, corners, color=GREY, linewidth=1, label="equal")
    for factor in (1 - _BAND, 1 + _BAND):
        axes.plot(corners, corners * factor, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(f"dashed: ±{100 * _BAND:.0f} %", (0.04, 0.96), xycoords="axes fraction", va="top",
                  color=GREY)  # fmt: skip
    if span.is_log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        span.put_ticks(axis)
    axes.set_xlim(*limits)
    axes.set_ylim(*limits)
    axes.set_aspect("equal")
    axes.set_xlabel(span.named("measured"))
