"""What all pictures of distributions share: an axis in percent, and marks at the p99."""

from matplotlib.axes import Axes

from sim.report.figures.canvas import Style
from sim.report.figures.ownership import beside
from sim.report.plot_style import GREY

P99 = 99


def draw_p99_line(axes: Axes) -> None:
    """A dashed horizontal line at 99 %, with `p99` at its right end."""
    axes.axhline(P99, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate("p99", (1, P99), xycoords=("axes fraction", "data"), xytext=(3, 0),
                  textcoords="offset points", va="center", color=GREY)  # fmt: skip


def draw_p99_dot(axes: Axes, value: float, style: Style) -> None:
    """The 99th percentile on a curve."""
    edge = "white" if style.fill == "full" else style.colour
    axes.plot(value, P99, style.marker, color=style.colour, markersize=6, markeredgecolor=edge,
              fillstyle=style.fill, zorder=3, label=beside(style.label))  # fmt: skip


def put_percent_axis(axes: Axes, label: str) -> None:
    """The vertical axis, from 0 % to a little above 100 %."""
    axes.set_ylim(0, 103)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylabel(label)
