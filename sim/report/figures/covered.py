"""Makes lines visible that other lines cover: they are drawn wider than what is above them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

# Of the panel's height: lines that are nearer to each other everywhere cannot be told apart.
_NEAR = 0.012
_MORE_WIDTH, _MORE_MARKER = 2.6, 3.5
_MOST = 3


def uncover(axes: Axes, lines: Sequence[Sequence[Line2D]]) -> None:
    """Widen each line for every later one that covers it. Call it when the axes have their limits.

    Args:
        axes: the panel.
        lines: the parts of each line, in order of drawing; the first part has all its points.
    """
    for place, parts in enumerate(lines):
        above = [later for later in lines[place + 1 :] if _covers(axes, later[0], parts[0])]
        for part in parts if above else ():
            num_above = min(len(above), _MOST)
            part.set_linewidth(part.get_linewidth() + num_above * _MORE_WIDTH)
            part.set_markersize(part.get_markersize() + num_above * _MORE_MARKER)


def _covers(axes: Axes, later: Line2D, line: Line2D) -> bool:
    """Whether all points of a line are hidden by those of a later one."""
    own, other = (axes.transData.transform(each.get_xydata()) for each in (line, later))
    if own.shape != other.shape or not len(own):
        return False
    apart = np.abs(own - other) / axes.get_window_extent().height
    return bool(np.nan_to_num(apart, nan=0.0).max() < _NEAR)
