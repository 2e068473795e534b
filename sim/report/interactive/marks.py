"""What one panel shows, without matplotlib: lines, bars, cells, and the axes they stand on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

# None: a gap of a line, or a value that is not defined.
Numbers = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line, points, a band or bars.

    Attributes:
        line: the legend entry that hides it; empty: none does.
        kind: `line`: points in order, joined or marked; `band`: an outline that is filled; `bars`.
        colour: `#rrggbb`.
        x, y: the points; for bars their middles and heights.
        has_values: whether the reader can point at it, and the figure's data have it.
        low, high: ends of the values' intervals; empty: there are none.
        opacity: of the whole mark.
        dash: dashes and gaps in pixels, or empty; of bars: `hatch` or empty.
        width: of the line in pixels, or of the bars in units of the axis; 0: no line.
        marker: matplotlib's name of the points' marker; empty: none.
        fill: how the marker is filled, see `canvas.FILLS`; `hollow`: with the page's ground.
        size: of the marker in pixels.
        steps: whether a value lasts until the next point.
    """

    line: str
    kind: Literal["line", "band", "bars"]
    colour: str
    x: Numbers
    y: Numbers
    has_values: bool = False
    low: Numbers = ()
    high: Numbers = ()
    opacity: float = 1.0
    dash: str = ""
    width: float = 0.0
    marker: str = ""
    fill: str = "full"
    size: float = 0.0
    steps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A straight line across the panel, at a place on the `x` or the `y` axis."""

    axis: Literal["x", "y"]
    at: float
    colour: str
    dash: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A text at a point; `dx` and `dy` are pixels from there, upwards and to the right.

    With `x_is_share`, `x` is 0 at the left end of the panel and 1 at the right end.
    """

    text: str
    x: float
    y: float
    dx: float
    dy: float
    colour: str
    x_is_share: bool = False
    has_arrow: bool = False
    is_bold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """A heat map: values by row and column, and each as a share of the colours' range."""

    x: Sequence[str]
    y: Sequence[str]
    values: Sequence[Numbers]
    shares: Sequence[Numbers]
    texts: Sequence[Sequence[str]]
    colours: str
    ticks: Sequence[tuple[float, str]]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelAxis:
    """An axis of a panel.

    Attributes:
        label: its title.
        is_log: whether it is logarithmic.
        limits: its ends.
        ticks: places and texts, if they are names rather than numbers; else empty.
        is_latency: whether its numbers are milliseconds, written with their unit.
    """

    label: str
    is_log: bool
    limits: tuple[float, float]
    ticks: Sequence[tuple[float, str]] = ()
    is_latency: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelMarks:
    """One panel.

    Attributes:
        title: above it.
        x, y: its axes.
        marks, guides, notes: what stands on them, the lowest first.
        cells: of a heat map.
    """

    title: str
    x: PanelAxis
    y: PanelAxis
    marks: list[Mark] = field(default_factory=list)
    guides: list[Guide] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    cells: Cells | None = None
