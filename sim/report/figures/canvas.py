"""What the figures of a report share: panels in a grid, a title, a legend above, a caption."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sim.report.plot_style import PALETTE, new_figure, plain_text

MAX_COLUMNS = 3
# Width and height of a panel, by the number of columns.
_PANEL_PX: Mapping[int, tuple[int, int]] = {1: (980, 500), 2: (620, 420), 3: (480, 390)}
_HEADER_PX = 90
_CHARACTER_PX, _HANDLE_PX = 8.0, 60
_TITLE_FONT = FontProperties(size=13, weight="bold")

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# How markers are filled, one way for each of DASHES.
Fill = Literal["full", "none", "left", "top"]
FILLS: tuple[Fill, ...] = ("full", "none", "left", "top")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
# Patterns of bars: one way for each of DASHES, and again for lines beyond the last colour.
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A figure and the words around it.

    Attributes:
        figure: the picture.
        slug: the name of its files, in lower case and without blanks.
        title: what the figure shows.
        caption: how to read it.
    """

    figure: Figure
    slug: str
    title: str
    caption: str

    @property
    def size_px(self) -> tuple[int, int]:
        """Width and height."""
        dpi = self.figure.dpi
        return round(self.figure.get_figwidth() * dpi), round(self.figure.get_figheight() * dpi)


@dataclass(frozen=True, slots=True)
class Style:
    """How a line looks, and what the legend calls it."""

    label: str
    colour: str
    dash: Any = "-"
    marker: str = "o"
    fill: Fill = "full"
    hatch: str = ""

    @property
    def handle(self) -> Line2D:
        return Line2D([], [], color=self.colour, linestyle=self.dash, marker=self.marker,
                      markersize=5, fillstyle=self.fill)  # fmt: skip

    @property
    def patch(self) -> Patch:
        return Patch(facecolor=self.colour, hatch=self.hatch or None, edgecolor="white",
                     linewidth=0)  # fmt: skip


def numbered_style(label: str, number: int, dash: int = 0) -> Style:
    """The style of line `number`; `dash` numbers its dashes.

    No two lines have the same colour and marker, nor bars the same colour and pattern, as long as a
    figure has at most 28 lines.
    """
    # Three turns for each round of the colours: so two rounds of three groups differ, too.
    colour, turn = PALETTE[number % len(PALETTE)], number // len(PALETTE) * 3 + dash
    marker, fill = MARKERS[(number + turn) % len(MARKERS)], FILLS[dash % len(FILLS)]
    hatch = HATCHES[turn % len(HATCHES)]
    return Style(label, colour, DASHES[dash % len(DASHES)], marker, fill, hatch)


def panel_grid(num_panels: int, preferred_columns: int | None) -> tuple[Figure, list[Axes]]:
    """A figure with this number of panels, row by row, in at most `MAX_COLUMNS` columns."""
    columns = preferred_columns or (2 if num_panels == 4 else min(num_panels, MAX_COLUMNS))
    rows = -(-num_panels // columns)
    width_px, height_px = _PANEL_PX[columns]
    figure = new_figure(width_px * columns, height_px * rows + _HEADER_PX)
    grid = figure.subplots(rows, columns, squeeze=False)
    panels = list(grid.flat)
    for unused in panels[num_panels:]:
        unused.remove()
    return figure, panels[:num_panels]


def put_header(
    figure: Figure, title: str, styles: Sequence[Style], *, as_patches: bool = False
) -> None:
    """Put the title on a figure, and a legend below it if there are two styles or more.

    `as_patches`: the legend shows patches of colour, not lines.
    """
    if len(styles) < 2:
        figure.suptitle(plain_text(title), x=0.012, ha="left", fontproperties=_TITLE_FONT)
        return
    widest_px = max(len(style.label) for style in styles) * _CHARACTER_PX + _HANDLE_PX
    most = max(1, int(figure.get_figwidth() * figure.dpi / widest_px))
    columns = -(-len(styles) // -(-len(styles) // most))
    ordered = _by_row(styles, columns)
    legend = figure.legend(
        [style.patch if as_patches else style.handle for style in ordered],
        [plain_text(style.label) for style in ordered],
        loc="outside upper left",
        ncols=columns,
        handlelength=2.8,
        title=plain_text(title),
        title_fontproperties=_TITLE_FONT,
    )
    legend.set_alignment("left")


def _by_row(styles: Sequence[Style], columns: int) -> list[Style]:
    """The styles in the order that makes a legend read row by row: it is filled by columns."""
    rows = range(0, len(styles), columns)
    return [styles[row + column] for column in range(columns) for row in rows
            if row + column < len(styles)]  # fmt: skip
