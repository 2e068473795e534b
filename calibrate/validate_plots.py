"""Pictures of a validation: predicted against measured step times."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from sim.core.units import NS_PER_MS
from sim.report.plot_style import GREY, PALETTE, latency_text, new_figure, plain_text, styled

Float64 = NDArray[np.float64]

_BAND = 0.1
_PANEL_PX, _HEIGHT_PX = 520, 560
# More dots than this only make the picture heavy.
_MAX_DOTS = 4_000


@styled
def plot_step_times(times: Mapping[str, tuple[Float64, Float64]]) -> Figure:
    """Predicted over measured step times, logarithmic; on the diagonal they are equal.

    Args:
        times: measured and predicted ns, each of shape [num_steps], all above 0; one panel for
            each name.
    """
    figure = new_figure(_PANEL_PX * max(len(times), 1), _HEIGHT_PX)
    panels = figure.subplots(1, max(len(times), 1), squeeze=False)[0]
    for number, (name, (measured, predicted)) in enumerate(times.items()):
        axes = panels[number]
        _draw(axes, measured / NS_PER_MS, predicted / NS_PER_MS, PALETTE[number % len(PALETTE)])
        axes.set_title(plain_text(f"{name}, {len(measured):,} steps"))
    panels[0].set_ylabel("predicted")
    return figure


def _draw(axes: Axes, measured_ms: Float64, predicted_ms: Float64, colour: str) -> None:
    every = -(-len(measured_ms) // _MAX_DOTS)
    axes.plot(
        measured_ms[::every], predicted_ms[::every], "o", color=colour, markersize=3.5, alpha=0.35,
        markeredgewidth=0, label="steps",
    )  # fmt: skip
    both = np.concatenate([measured_ms, predicted_ms])
    limits = np.array([both.min() / 1.2, both.max() * 1.2])
    axes.plot(limits, limits, color=GREY, linewidth=1, label="equal")
    for factor in (1 - _BAND, 1 + _BAND):
        axes.plot(limits, limits * factor, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(f"dashed: ±{100 * _BAND:.0f} %", (0.04, 0.96), xycoords="axes fraction", va="top",
                  color=GREY)  # fmt: skip
    _log_axes(axes, limits)
    axes.set_xlabel("measured (log scale)")


def _log_axes(axes: Axes, limits: Float64) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = float(limits[0]), float(limits[1])
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        if high < 50 * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _position: latency_text(value)))
        axis.set_minor_formatter(NullFormatter())
