"""Pictures of a simulation beside what was measured: steps, requests, and sizes over time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from sim.core.arrays import Float64
from sim.core.units import NS_PER_MS, NS_PER_S
from sim.report.figures.axes import axis_from_zero, padded, wants_log
from sim.report.figures.cdf import percent_axis
from sim.report.figures.key_text import time_unit
from sim.report.figures.marks import (
    DASHED,
    DASHES,
    GREY,
    PALETTE,
    Axis,
    Limits,
    Line,
    Mark,
    Note,
    Panel,
    Picture,
    Style,
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

    def axis(self, words: str, limits: Limits) -> Axis:
        """An axis of latencies, with ticks such as 10 ms, 100 ms, 1 s."""
        label = f"{words} (log scale)" if self.is_log else words
        return Axis(label=label, limits=limits, is_log=self.is_log, is_latency=True)


def plot_step_times(times: Mapping[str, tuple[Float64, Float64]]) -> Picture:
    """Predicted over measured step times, logarithmic; on the diagonal they are equal.

    Args:
        times: measured and predicted ns, each of shape [num_steps], all above 0; one panel for
            each name.
    """
    panels: list[Panel] = []
    for name, (measured_ns, predicted_ns) in times.items():
        both = Both(measured_ns / NS_PER_MS, predicted_ns / NS_PER_MS)
        values = np.concatenate(both)
        span = _Span(float(values.min() / 1.2), float(values.max() * 1.2), is_log=True)
        dots = _dots(both, len(panels), "steps", 0.35)
        title = f"{name}, {len(measured_ns):,} steps"
        up = "" if panels else "predicted"
        panels.append(_against(title, dots, span, (span.low, span.high), up))
    columns = max(len(panels), 1)
    size_px = _STEP_PANEL_PX * columns, _STEP_HEIGHT_PX
    return Picture(panels=panels, columns=columns, size_px=size_px)


def plot_requests(latencies_ms: Mapping[str, Both]) -> Picture:
    """Each request's simulated latency over its measured one; on the diagonal they are equal.

    Args:
        latencies_ms: ms without NaN, by name; one panel each. An axis is logarithmic if a latency
            has a wide range; it then leaves out zeros and says so.
    """
    panels: list[Panel] = []
    for name, both in latencies_ms.items():
        span = _Span.of(both)
        shown = (both.measured > 0) & (both.simulated > 0) | (not span.is_log)
        limits = padded(span.low, span.high, 0.04, is_log=span.is_log)
        dots = _dots(
            Both(both.measured[shown], both.simulated[shown]), len(panels), "requests", 0.45
        )
        num_shown, num_zeros = int(shown.sum()), int((~shown).sum())
        left_out = f", {num_zeros:,} at 0 left out" if num_zeros else ""
        title = f"{name}, {num_shown:,} requests{left_out}"
        panels.append(_against(title, dots, span, limits, "" if panels else "simulated"))
    return _row(panels, "Requests, simulated over measured")


def plot_distributions(latencies_ms: Mapping[str, Both]) -> Picture:
    """The share of requests up to each latency, measured and simulated, in one panel each."""
    panels: list[Panel] = []
    for name, both in latencies_ms.items():
        percent = np.linspace(0, 100, min(max(len(both.measured), 2), _MAX_CORNERS))
        curves = [
            Line(x=np.percentile(values, percent), y=percent, colour=style.colour, dash=style.dash)
            for values, style in zip(both, _STYLES, strict=True)
            if len(values)
        ]
        span = _Span.of(both)
        limits = padded(span.low, span.high, 0.04, is_log=span.is_log)
        panels.append(Panel(title=name, x=span.axis(name, limits), marks=curves,
                            y=percent_axis("requests (%)")))  # fmt: skip
    return _row(panels, "How latencies are distributed", _STYLES, shares="y")


def plot_over_time(t_s: Float64, sizes: Mapping[str, Both]) -> Picture:
    """Numbers of requests over time, measured and simulated; one panel for each size.

    Args:
        t_s: times of measurement, ascending.
        sizes: numbers of requests (for example `running`) at these times, by name.
    """
    unit_ns, unit = time_unit(round(float(t_s[-1]) * NS_PER_S))
    times = t_s * NS_PER_S / unit_ns
    x = Axis(label=f"time ({unit})", limits=(0.0, float(times[-1])))
    panels: list[Panel] = []
    for name, both in sizes.items():
        lines = [Line(x=times, y=values, colour=style.colour, dash=style.dash)
                 for values, style in zip(both, _STYLES, strict=True)]  # fmt: skip
        panels.append(Panel(title=name, x=x, y=axis_from_zero("requests", *both), marks=lines))
    size_px = 1_100, 330 * len(sizes) + 90
    return Picture(panels=panels, columns=1, size_px=size_px, title="Requests over time",
                   legend=_STYLES, shares="x")  # fmt: skip


def _row(
    panels: Sequence[Panel], title: str, legend: Sequence[Style] = (), shares: Literal["", "y"] = ""
) -> Picture:
    size_px = _PANEL_PX * len(panels), _HEIGHT_PX
    return Picture(panels=panels, columns=len(panels), size_px=size_px, title=title, legend=legend,
                   shares=shares)  # fmt: skip


def _dots(both: Both, number: int, what: str, opacity: float) -> Line:
    """A dot for each of the values of panel `number`, or for some of them, if they are many."""
    every = max(1, -(-len(both.measured) // _MAX_DOTS))
    return Line(x=both.measured[::every], y=both.simulated[::every], line=what, width=0, marker="o",
                colour=PALETTE[number % len(PALETTE)], size=3.5, opacity=opacity)  # fmt: skip


def _against(title: str, dots: Line, span: _Span, limits: Limits, up: str) -> Panel:
    """Dots of one run over the other, the line where both are equal, and a band of 10 %.

    Args:
        title: of the panel, which is square.
        dots: the values, in ms.
        span: the range of the values, which decides scale and ticks.
        limits: of both axes.
        up: the title of the vertical axis.
    """
    corners = np.array(limits)
    marks: list[Mark] = [dots, Line(x=corners, y=corners, line="equal", colour=GREY, width=1)]
    marks += [Line(x=corners, y=corners * factor, colour=GREY, width=0.8, dash=DASHED)
              for factor in (1 - _BAND, 1 + _BAND)]  # fmt: skip
    marks.append(Note(text=f"dashed: ±{100 * _BAND:.0f} %", x=0.02, y=0.98, dx=3, dy=-3,
                      colour=GREY, x_is_share=True, y_is_share=True))  # fmt: skip
    y = replace(span.axis("", limits), label=up)
    return Panel(title=title, x=span.axis("measured", limits), y=y, marks=marks, is_square=True)
