"""Labels beside points, placed so that they cover neither points nor each other.

Sizes and distances are in typographic points (1/72 inch).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sim.report.figures.marks import Axis, Note

_POINTS_PER_PX = 0.6
_LETTER_POINTS, _LINE_POINTS = 5.2, 11.0
# Directions in which a label may lie, the preferred ones first.
_DIRECTIONS = ((1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))
_DISTANCES = (6.0, 13.0, 22.0)
_DOT_RADIUS = 5.0


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


def placed(
    labels: Sequence[Note], panel_axes: tuple[Axis, Axis], frame_px: Sequence[int]
) -> list[Note]:
    """The labels, each moved from its point to where it covers least."""
    width, height = (each * _POINTS_PER_PX for each in frame_px)
    across, up = panel_axes
    points = list(zip((across.shares([label.x for label in labels]) * width).tolist(),
                      (up.shares([label.y for label in labels]) * height).tolist(),
                      strict=True))  # fmt: skip
    inside = _Box(0, 0, width, height)
    taken = [_around(x, y) for x, y in points]
    found = []
    for label, (x, y) in zip(labels, points, strict=True):
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
        is_far = max(abs(dx), abs(dy)) > _DISTANCES[0]
        found.append(replace(label, dx=dx, dy=dy, is_far=is_far))
    return found


def _around(x: float, y: float) -> _Box:
    return _Box(x - _DOT_RADIUS, y - _DOT_RADIUS, x + _DOT_RADIUS, y + _DOT_RADIUS)


def _box(label: Note, x: float, y: float, dx: float, dy: float) -> _Box:
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
