"""What all pictures of distributions share: an axis in percent, and marks at the p99."""

from matplotlib.axes import Axes

from sim.report.plot_style import GREY

P99 = 99


def draw_p99_line(axes: Axes) -> None:
    """A dashed horizontal line at 99 %, with `p99` at its right end."""
    axes.axhline(P99, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate("p99", (1, P99), xycoords=("axes fraction", "data"), xytext=(3, 0),
                  textcoords="offset points", va="center", color=GREY)  # fmt: skip


def draw_p99_dot(axes: Axes, value: float, colour: str, marker: str = "o") -> None:
    """The 99th percentile on a curve."""
    axes.plot(value, P99, marker, color=colour, markersize=6, markeredgecolor="white", zorder=3)


def put_percent_axis(axes: Axes, label: str) -> None:
    """The vertical axis, from 0 % to a little above 100 %."""
    axes.set_ylim(0, 103)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylabel(label)
