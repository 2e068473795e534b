"""Labels beside points, placed so that they cover neither points nor each other.

Sizes and distances are in typographic points (1/72 inch).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from sim.report.plot_style import plain_text

_FONT_POINTS = 8.5
_LETTER_POINTS, _LINE_POINTS = 5.2, 11.0
# Directions in which a label may lie, the preferred ones first.
_DIRECTIONS = ((1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))
_DISTANCES = (6.0, 13.0, 22.0)
_DOT_RADIUS = 5.0


class Label(NamedTuple):
    """A text, and the point that it belongs to, in the units of the axes."""

    x: float
    y: float
    text: str
    colour: str
    is_bold: bool = False


class _Box(NamedTuple):
    """A rectangle, measured from the lower left corner of the axes."""

    left: float
    low: float
    right: float
    high: float

    def overlap(self, other: "_Box") -> float:
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.high, other.high) - max(self.low, other.low)
        return max(width, 0.0) * max(height, 0.0)


def place_labels(axes: Axes, labels: Sequence[Label]) -> None:
    """Write each label where it covers least. The axes must have their final limits and scales."""
    scale = 72 / axes.figure.dpi
    frame = axes.get_window_extent()
    corner = np.array([frame.x0, frame.y0])
    at = [(axes.transData.transform((label.x, label.y)) - corner) * scale for label in labels]
    inside = _Box(0, 0, frame.width * scale, frame.height * scale)
    taken = [_around(x, y) for x, y in at]
    for label, (x, y) in zip(labels, at, strict=True):
        places = [
            (distance * dx, distance * dy, _box(label, x, y, distance * dx, distance * dy))
            for distance in _DISTANCES
            for dx, dy in _DIRECTIONS
        ]
        costs = [
            sum(box.overlap(other) for other in taken) + 3 * _outside(box, inside) + _far(dx, dy)
            for dx, dy, box in places
        ]
        dx, dy, box = places[int(np.argmin(costs))]
        taken.append(box)
        _write(axes, label, dx, dy)


def _write(axes: Axes, label: Label, dx: float, dy: float) -> None:
    far = max(abs(dx), abs(dy)) > _DISTANCES[0]
    axes.annotate(
        plain_text(label.text),
        (label.x, label.y),
        xytext=(dx, dy),
        textcoords="offset points",
        ha=_align(dx, "right", "left"),
        va=_align(dy, "top", "bottom"),
        color=label.colour,
        fontsize=_FONT_POINTS,
        fontweight="bold" if label.is_bold else "normal",
        # Legible over lines.
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
        zorder=5,
        arrowprops={"arrowstyle": "-", "color": label.colour, "linewidth": 0.5, "shrinkB": 3}
        if far
        else None,
    )


def _align(offset: float, below: str, above: str) -> str:
    return "center" if offset == 0 else (below if offset < 0 else above)


def _around(x: float, y: float) -> _Box:
    return _Box(x - _DOT_RADIUS, y - _DOT_RADIUS, x + _DOT_RADIUS, y + _DOT_RADIUS)


def _box(label: Label, x: float, y: float, dx: float, dy: float) -> _Box:
    width = len(label.text) * _LETTER_POINTS * (1.1 if label.is_bold else 1.0)
    left = x + dx - width * _share(dx)
    low = y + dy - _LINE_POINTS * _share(dy)
    return _Box(left, low, left + width, low + _LINE_POINTS)


def _share(offset: float) -> float:
    """The share of a label's width (height) that lies left of (below) its anchor."""
    return 0.5 if offset == 0 else (1.0 if offset < 0 else 0.0)


def _outside(box: _Box, inside: _Box) -> float:
    area = (box.right - box.left) * (box.high - box.low)
    return area - box.overlap(inside)


def _far(dx: float, dy: float) -> float:
    """A small cost of distance: of two free places the nearer one is taken."""
    return 0.2 * max(abs(dx), abs(dy))
