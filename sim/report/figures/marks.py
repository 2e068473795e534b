"""What a picture is made of: marks on panels, without a library that draws.

`render` draws them with matplotlib, and the page's script (`report.js`) with Plotly. Widths, sizes
and offsets are in typographic points (1/72 inch), dashes and gaps in multiples of the line's width,
colours `#rrggbb`. NaN in the coordinates of a line is a gap.

The field `line` of a mark is the entry of the legend that hides the mark on the page; empty: none
does. A mark with `has_values` shows values: the reader can point at it, and the figure's data have
them. Other marks go along with it: a band, a ring, a segment between points.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from sim.core.arrays import Float64

Values: TypeAlias = Sequence[float] | Float64
Dash: TypeAlias = tuple[float, ...]
Limits: TypeAlias = tuple[float, float]
# `hollow`: with the colour of the ground.
Fill: TypeAlias = Literal["full", "none", "left", "top", "hollow"]

DASHED, DOTTED = (4.0, 3.0), (1.0, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """Points in order, joined or marked.

    Attributes:
        low, high: the ends of the values' intervals; empty: there are none.
        width: of the line that joins the points; 0: none does.
        marker: matplotlib's name of the points' marker; empty: none.
        steps: whether a value lasts until the next point.
        on_top: whether it is drawn over the marks after it.
    """

    x: Values
    y: Values
    colour: str
    line: str = ""
    has_values: bool = False
    low: Values = ()
    high: Values = ()
    width: float = 1.6
    dash: Dash = ()
    marker: str = ""
    fill: Fill = "full"
    size: float = 6.0
    opacity: float = 1.0
    steps: bool = False
    on_top: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band:
    """The area between two curves; its values are its heights."""

    x: Values
    low: Values
    high: Values
    colour: str
    line: str = ""
    has_values: bool = False
    opacity: float = 1.0
    steps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bars:
    """Bars from zero: their middles, heights and common width in units of the axes."""

    x: Values
    y: Values
    width: float
    colour: str
    line: str = ""
    has_values: bool = True
    low: Values = ()
    high: Values = ()
    hatch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """A heat map: a value for each row and column, NaN for none; the panel's ticks name them.

    Attributes:
        texts: what is written in the cells; empty: nothing.
        colours: the axis of the colours: its limits, ticks and title.
        is_diverging: whether the colours go both ways from the middle of their axis.
    """

    values: Float64
    texts: Sequence[Sequence[str]]
    colours: "Axis"
    is_diverging: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A line across the panel, at a place on one axis; `shift` is where its dashes begin."""

    axis: Literal["x", "y"]
    at: float
    colour: str
    line: str = ""
    width: float = 0.8
    dash: Dash = DASHED
    shift: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A text at a point, `dx` to the right of it and `dy` above it.

    Attributes:
        x_is_share, y_is_share: whether the coordinate is a share of the panel, from 0 to 1.
        is_far: whether a thin line joins text and point.
        is_upright: whether the text is written upwards.
    """

    text: str
    x: float
    y: float
    colour: str
    dx: float = 0.0
    dy: float = 0.0
    x_is_share: bool = False
    y_is_share: bool = False
    is_far: bool = False
    is_bold: bool = False
    is_upright: bool = False


Mark: TypeAlias = Line | Band | Bars | Cells | Guide | Note


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of a panel.

    Attributes:
        label: its title, with the unit.
        ticks: positions and texts; if empty, what draws the axis chooses round numbers.
        is_latency: whether its numbers are milliseconds, written with their unit: `10 ms`, `1 s`.
        is_slanted: whether the texts are, so that they do not touch each other.
    """

    label: str
    limits: Limits = (0.0, 1.0)
    is_log: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    is_latency: bool = False
    is_slanted: bool = False

    def shares(self, values: Values) -> Float64:
        """How far along the axis values stand: 0 at its beginning, 1 at its end."""
        found, ends = (np.asarray(each, dtype=np.float64) for each in (values, self.limits))
        if self.is_log:
            with np.errstate(divide="ignore", invalid="ignore"):
                found, ends = np.log(found), np.log(ends)
        return np.asarray((found - ends[0]) / (ends[1] - ends[0]), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Style:
    """An entry of a legend: what a line is called, and how it looks; `is_area`: it is filled."""

    label: str
    colour: str
    dash: Dash = ()
    marker: str = "o"
    fill: Fill = "full"
    hatch: str = ""
    is_joined: bool = True
    is_area: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Axes and the marks on them, the lowest first; its own legend is beside its title."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: str = ""
    legend: Sequence[Style] = ()
    is_square: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Panels row by row, below a title and a legend of two entries or more.

    Attributes:
        shares: the axis that all panels have in common, written once: `x` by the lowest panel, `y`
            by the leftmost.
    """

    panels: Sequence[Panel]
    columns: int
    size_px: tuple[int, int]
    title: str = ""
    legend: Sequence[Style] = ()
    shares: Literal["", "x", "y"] = ""


def segments(x: Values, low: Values, high: Values) -> tuple[Float64, Float64]:
    """The coordinates of a line that goes up from `low` to `high` at each `x`, with gaps."""
    gap = np.full(len(x), np.nan)
    return np.column_stack((x, x, gap)).ravel(), np.column_stack((low, high, gap)).ravel()


# Okabe and Ito's palette, which the colour-blind can distinguish; strongest contrasts first.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY, BLACK = "#6b6b6b", "#222222"

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# How markers are filled, one way for each of DASHES.
_FILLS: tuple[Fill, ...] = ("full", "none", "left", "top")
DASHES: tuple[Dash, ...] = ((), (5, 2), (1, 1.5), (5, 2, 1, 2))
# Patterns of bars: one way for each of DASHES, and again for lines beyond the last colour.
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")


def numbered_style(label: str, number: int, dash: int = 0) -> Style:
    """The style of line `number`; `dash` numbers its dashes.

    No two lines have the same colour and marker, nor bars the same colour and pattern, as long as a
    figure has at most 28 lines.
    """
    # Each round of the colours moves markers and patterns on by three, so that a colour's first
    # three dashes look different in the next round.
    colour, turn = PALETTE[number % len(PALETTE)], number // len(PALETTE) * 3 + dash
    marker, fill = _MARKERS[(number + turn) % len(_MARKERS)], _FILLS[dash % len(_FILLS)]
    return Style(
        label, colour, DASHES[dash % len(DASHES)], marker, fill, _HATCHES[turn % len(_HATCHES)]
    )


# Sizes and distances of labels, in points.
_POINTS_PER_PX = 0.6
_LETTER_POINTS, _LINE_POINTS = 5.2, 11.0
# Directions in which a label may lie, the preferred ones first.
_DIRECTIONS = ((1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))
_DISTANCES = (6.0, 13.0, 22.0)
_DOT_RADIUS = 5.0
# The share of a label's width (height) that lies left of (below) its point, by its direction.
_SHARES = {1: 0.0, 0: 0.5, -1: 1.0}


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
    """Labels of points, each moved to where it covers least: neither points nor other labels."""
    width, height = (each * _POINTS_PER_PX for each in frame_px)
    across, up = panel_axes
    points = list(zip((across.shares([label.x for label in labels]) * width).tolist(),
                      (up.shares([label.y for label in labels]) * height).tolist(),
                      strict=True))  # fmt: skip
    inside, dot = _Box(0, 0, width, height), _DOT_RADIUS
    taken = [_Box(x - dot, y - dot, x + dot, y + dot) for x, y in points]
    found = []
    for label, (x, y) in zip(labels, points, strict=True):
        length = len(label.text) * _LETTER_POINTS * (1.1 if label.is_bold else 1.0)
        best, least = (0.0, 0.0, inside), math.inf
        for distance, (right, above) in product(_DISTANCES, _DIRECTIONS):
            dx, dy = distance * right, distance * above
            left, low = x + dx - length * _SHARES[right], y + dy - _LINE_POINTS * _SHARES[above]
            box = _Box(left, low, left + length, low + _LINE_POINTS)
            outside = (box.right - box.left) * (box.high - box.low) - box.overlap(inside)
            cost = sum(box.overlap(other) for other in taken) + 3 * outside
            # Of two free places the nearer one is taken.
            cost += 0.2 * max(abs(dx), abs(dy))
            if cost < least:
                best, least = (dx, dy, box), cost
        dx, dy, box = best
        taken.append(box)
        is_far = max(abs(dx), abs(dy)) > _DISTANCES[0]
        found.append(replace(label, dx=dx, dy=dy, is_far=is_far))
    return found
