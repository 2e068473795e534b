"""What the figures of a report share: panels in a grid, a title, a legend above, a caption."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D

from sim.report.plot_style import PALETTE, new_figure, plain_text
from sim.report.sweep_data import SweepData
from sim.report.words import where_text

_MAX_COLUMNS = 3
# Of a panel, by the number of columns.
_PANEL_PX: Mapping[int, tuple[int, int]] = {1: (980, 500), 2: (620, 420), 3: (480, 390)}
_HEADER_PX = 90
_CHARACTER_PX, _HANDLE_PX = 8.0, 60
_TITLE_FONT = FontProperties(size=13, weight="bold")

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A figure and the words around it.

    Attributes:
        figure: the picture.
        slug: names its files: lower case, no blanks.
        title: what is seen.
        caption: how to read it.
    """

    figure: Figure
    slug: str
    title: str
    caption: str


@dataclass(frozen=True, slots=True)
class Style:
    """How a line looks, and what the legend calls it."""

    label: str
    colour: str
    dash: Any = "-"
    marker: str = "o"

    @property
    def handle(self) -> Line2D:
        return Line2D([], [], color=self.colour, linestyle=self.dash, marker=self.marker,
                      markersize=5)  # fmt: skip


def numbered_style(label: str, number: int, dash: int = 0) -> Style:
    """The look of line `number`: its colour, and its marker, tell it from the others."""
    colour = PALETTE[number % len(PALETTE)]
    return Style(label, colour, DASHES[dash % len(DASHES)], MARKERS[number % len(MARKERS)])


def panel_grid(num_panels: int, preferred_columns: int = 0) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels, row by row, in at most three columns."""
    columns = preferred_columns or min(num_panels, _MAX_COLUMNS)
    if not 1 <= columns <= _MAX_COLUMNS:
        columns = _MAX_COLUMNS
    if num_panels == 4 and not preferred_columns:
        columns = 2
    rows = -(-num_panels // columns)
    width_px, height_px = _PANEL_PX[columns]
    figure = new_figure(width_px * columns, height_px * rows + _HEADER_PX)
    grid = figure.subplots(rows, columns, squeeze=False)
    panels = list(grid.flat)
    for unused in panels[num_panels:]:
        unused.remove()
    return figure, panels[:num_panels]


def put_header(figure: Figure, title: str, styles: Sequence[Style], legend_title: str = "") -> None:
    """The title, and a legend below it if there is anything to tell apart."""
    if len(styles) < 2:
        figure.suptitle(plain_text(title), x=0.012, ha="left", fontproperties=_TITLE_FONT)
        return
    labels = [plain_text(style.label) for style in styles]
    widest_px = max(map(len, labels)) * _CHARACTER_PX + _HANDLE_PX
    columns = max(1, int(figure.get_figwidth() * figure.dpi / widest_px))
    legend = figure.legend(
        [style.handle for style in styles],
        labels,
        loc="outside upper left",
        ncols=min(columns, len(styles)),
        title=plain_text(title) + (f"\n{plain_text(legend_title)}" if legend_title else ""),
        title_fontproperties=_TITLE_FONT,
    )
    legend.set_alignment("left")


def seeds_caption(data: SweepData, mark: str) -> str:
    """What a point is; `mark` is what shows its interval, if anything does."""
    if data.num_seeds < 2:
        return ""
    text = f"Means of {data.num_seeds} seeds"
    return (
        f"{text}; {mark} are 95 % confidence intervals."
        if data.has_intervals and mark
        else f"{text}."
    )


def caption_of(given: str | None, sentences: Sequence[str], where: str) -> str:
    """The user's caption, or the sentences; and what the plot is narrowed down to."""
    shown = [given] if given else [sentence for sentence in sentences if sentence]
    return " ".join([*shown, *([f"Only {where}."] if where else [])])


def where_of(wanted: Mapping[str, Any] | None, keys: Sequence[str]) -> str:
    return where_text(wanted, keys) if wanted else ""


def slug_of(*words: str) -> str:
    """A name for files, of letters, digits and dashes."""
    text = "-".join(words).lower()
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text)
    return "-".join(filter(None, kept.split("-")))[:60].rstrip("-")


def joined(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
